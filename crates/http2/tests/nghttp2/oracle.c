/* nghttp2 for tests, over standard input and output: `oracle inflate` decodes header blocks, `oracle client COUNT PATH...` sends each
 * request COUNT times, `oracle server` answers a path like /123 with 123 bytes. What a session has seen is written to standard error. */
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_hex(const uint8_t *bytes, size_t len) {
    for (size_t at = 0; at < len; at++) printf("%02x", bytes[at]);
}

/* Lines: "N" begins another decoder, "T size" sets the table's size, "B hex" decodes. Answers to B: fields as "name=value" in hex, then "ok" or "bad". */
static int inflate(void) {
    nghttp2_hd_inflater *inflater = NULL;
    static char line[400000];
    static uint8_t block[200000];
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == 'N') {
            if (inflater) nghttp2_hd_inflate_del(inflater);
            nghttp2_hd_inflate_new(&inflater);
            continue;
        }
        if (line[0] == 'T') {
            nghttp2_hd_inflate_change_table_size(inflater, strtoul(line + 2, NULL, 10));
            continue;
        }
        size_t len = 0;
        for (char *at = line + 2; at[0] > ' ' && at[1] > ' '; at += 2) {
            char digits[3] = {at[0], at[1], 0};
            block[len++] = (uint8_t)strtoul(digits, NULL, 16);
        }
        const uint8_t *at = block;
        int is_good = 0;
        for (;;) {
            nghttp2_nv field;
            int flags = 0;
            ssize_t used = nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, len, 1);
            if (used < 0) break;
            at += used;
            len -= (size_t)used;
            if (flags & NGHTTP2_HD_INFLATE_EMIT) {
                print_hex(field.name, field.namelen);
                printf("=");
                print_hex(field.value, field.valuelen);
                printf("\n");
            }
            if (flags & NGHTTP2_HD_INFLATE_FINAL) {
                is_good = nghttp2_hd_inflate_end_headers(inflater) == 0;
                break;
            }
            if (!(flags & NGHTTP2_HD_INFLATE_EMIT) && len == 0) break;
        }
        printf(is_good ? "ok\n" : "bad\n");
        fflush(stdout);
    }
    return 0;
}

struct stream {
    int status;
    long bytes;
    char path[200];
    long left;
};

static struct stream *stream_of(nghttp2_session *session, int32_t id) {
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    return stream;
}

static int open_streams;

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    (void)user;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, calloc(1, sizeof(struct stream)));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user) {
    (void)flags, (void)user, (void)name_len;
    struct stream *stream = stream_of(session, frame->hd.stream_id);
    if (!stream) return 0;
    if (!strcmp((const char *)name, ":status")) stream->status = atoi((const char *)value);
    if (!strcmp((const char *)name, ":path") && value_len < sizeof stream->path) memcpy(stream->path, value, value_len);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *user) {
    (void)flags, (void)user, (void)bytes;
    struct stream *stream = stream_of(session, id);
    if (stream) stream->bytes += (long)len;
    return 0;
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *to, size_t most, uint32_t *flags,
                         nghttp2_data_source *source, void *user) {
    (void)session, (void)id, (void)user;
    struct stream *stream = source->ptr;
    size_t len = most < (size_t)stream->left ? most : (size_t)stream->left;
    memset(to, 'x', len);
    stream->left -= (long)len;
    if (stream->left == 0) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)len;
}

static nghttp2_nv field(const char *name, const char *value) {
    nghttp2_nv pair = {(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
    return pair;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    int is_server = user != NULL;
    int carries = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!is_server || !carries || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    struct stream *stream = stream_of(session, frame->hd.stream_id);
    stream->left = atol(stream->path + 1);
    char length[30];
    snprintf(length, sizeof length, "%ld", stream->left);
    nghttp2_nv fields[] = {field(":status", "200"), field("content-length", length), field("server", "nghttp2"), field("x-path", stream->path)};
    nghttp2_data_provider body = {{.ptr = stream}, read_body};
    return nghttp2_submit_response(session, frame->hd.stream_id, fields, 4, &body);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    (void)user;
    struct stream *stream = stream_of(session, id);
    if (stream) fprintf(stderr, "%d %d %ld %u\n", id, stream->status, stream->bytes, code);
    open_streams--;
    return 0;
}

static int write_all(nghttp2_session *session) {
    for (;;) {
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(session, &bytes);
        if (len <= 0) return (int)len;
        while (len > 0) {
            ssize_t sent = write(1, bytes, (size_t)len);
            if (sent < 0) return -1;
            bytes += sent;
            len -= sent;
        }
    }
}

static int session(int count, char **paths, int path_count) {
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *session;
    int is_server = count == 0;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    if (is_server) nghttp2_session_server_new(&session, callbacks, &is_server);
    else nghttp2_session_client_new(&session, callbacks, NULL);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0);
    for (int at = 0; at < count * path_count; at++) {
        nghttp2_nv fields[] = {field(":method", "GET"), field(":scheme", "http"), field(":authority", "localhost"),
                               field(":path", paths[at % path_count]), field("user-agent", "oracle"), field("cookie", "a=b; c=d")};
        nghttp2_submit_request(session, NULL, fields, 6, NULL, calloc(1, sizeof(struct stream)));
        open_streams++;
    }
    for (;;) {
        if (write_all(session)) return 1;
        if (!is_server && open_streams == 0) return 0;
        uint8_t input[5000];
        ssize_t len = read(0, input, sizeof input);
        if (len <= 0) return is_server ? 0 : 2;
        ssize_t used = nghttp2_session_mem_recv(session, input, (size_t)len);
        if (used < 0) {
            fprintf(stderr, "%s\n", nghttp2_strerror((int)used));
            write_all(session);
            return 3;
        }
    }
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "inflate")) return inflate();
    if (count > 3 && !strcmp(words[1], "client")) return session(atoi(words[2]), words + 3, count - 3);
    return session(0, NULL, 0);
}
