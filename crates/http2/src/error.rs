//! What can be wrong with what a peer sends, the error code that it is sent for it, and the section that says so.

/// Why a stream or a connection ends (RFC 9113 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0x0,
    /// The peer has broken a rule that has no code of its own.
    ProtocolError = 0x1,
    /// Something failed on our side.
    InternalError = 0x2,
    /// The peer has sent more than a window allowed (RFC 9113 section 5.2).
    FlowControlError = 0x3,
    /// Our settings were not acknowledged in time (RFC 9113 section 6.5.3).
    SettingsTimeout = 0x4,
    /// A frame on a stream whose other side has ended (RFC 9113 section 5.1).
    StreamClosed = 0x5,
    /// A frame of a length that its type cannot have (RFC 9113 section 4.2).
    FrameSizeError = 0x6,
    /// Nothing was done for the request: it may be sent again (RFC 9113 section 8.7).
    RefusedStream = 0x7,
    /// Nobody needs the stream any more.
    Cancel = 0x8,
    /// A header block that cannot be decoded (RFC 9113 section 4.3).
    CompressionError = 0x9,
    /// The connection of a CONNECT request has failed (RFC 9113 section 8.5).
    ConnectError = 0xa,
    /// The peer causes more work than its requests justify (RFC 9113 section 10.5).
    EnhanceYourCalm = 0xb,
    /// The transport is not safe enough (RFC 9113 section 9.2).
    InadequateSecurity = 0xc,
    /// HTTP/1.1 is required.
    Http11Required = 0xd,
}

impl ErrorCode {
    /// The name that RFC 9113 section 7 gives the code, as in `PROTOCOL_ERROR`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::NoError => "NO_ERROR",
            ErrorCode::ProtocolError => "PROTOCOL_ERROR",
            ErrorCode::InternalError => "INTERNAL_ERROR",
            ErrorCode::FlowControlError => "FLOW_CONTROL_ERROR",
            ErrorCode::SettingsTimeout => "SETTINGS_TIMEOUT",
            ErrorCode::StreamClosed => "STREAM_CLOSED",
            ErrorCode::FrameSizeError => "FRAME_SIZE_ERROR",
            ErrorCode::RefusedStream => "REFUSED_STREAM",
            ErrorCode::Cancel => "CANCEL",
            ErrorCode::CompressionError => "COMPRESSION_ERROR",
            ErrorCode::ConnectError => "CONNECT_ERROR",
            ErrorCode::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            ErrorCode::InadequateSecurity => "INADEQUATE_SECURITY",
            ErrorCode::Http11Required => "HTTP_1_1_REQUIRED",
        }
    }

    /// The code with this number. Unknown ones may be treated as `INTERNAL_ERROR` (RFC 9113 section 7).
    #[must_use]
    pub fn of(number: u32) -> ErrorCode {
        match number {
            0x0 => ErrorCode::NoError,
            0x1 => ErrorCode::ProtocolError,
            0x3 => ErrorCode::FlowControlError,
            0x4 => ErrorCode::SettingsTimeout,
            0x5 => ErrorCode::StreamClosed,
            0x6 => ErrorCode::FrameSizeError,
            0x7 => ErrorCode::RefusedStream,
            0x8 => ErrorCode::Cancel,
            0x9 => ErrorCode::CompressionError,
            0xa => ErrorCode::ConnectError,
            0xb => ErrorCode::EnhanceYourCalm,
            0xc => ErrorCode::InadequateSecurity,
            0xd => ErrorCode::Http11Required,
            _ => ErrorCode::InternalError,
        }
    }
}

/// Declares the faults, each with its code and its reason.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident => $code:ident, $reason:literal;)*) => {
        /// What a peer has done wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ProtocolFault {
            $($(#[$doc])* $name,)*
        }

        impl ProtocolFault {
            /// The code that the peer is sent.
            pub(crate) fn code(self) -> ErrorCode {
                match self {
                    $(ProtocolFault::$name => ErrorCode::$code,)*
                }
            }

            /// The fault in words, for logs and for the GOAWAY frame; the section that it breaks stands at the end.
            pub(crate) fn reason(self) -> &'static str {
                match self {
                    $(ProtocolFault::$name => $reason,)*
                }
            }
        }
    };
}

faults! {
    /// The connection does not begin with the client's preface (RFC 9113 section 3.4).
    Preface => ProtocolError, "no connection preface (RFC 9113, 3.4)";
    /// The first frame is another one than SETTINGS (RFC 9113 section 3.4).
    FirstFrame => ProtocolError, "the first frame is not SETTINGS (RFC 9113, 3.4)";
    /// A frame is longer than our `SETTINGS_MAX_FRAME_SIZE` (RFC 9113 section 4.2).
    FrameTooLong => FrameSizeError, "a frame is too long (RFC 9113, 4.2)";
    /// A header block cannot be decoded (RFC 9113 section 4.3).
    Compression => CompressionError, "a header block cannot be decoded (RFC 9113, 4.3)";
    /// Another frame within a header block (RFC 9113 section 4.3).
    InterruptedBlock => ProtocolError, "a header block is interrupted (RFC 9113, 4.3)";
    /// A frame that cannot begin a stream, on a stream that has not begun (RFC 9113 section 5.1, "idle").
    IdleStream => ProtocolError, "a frame on an idle stream (RFC 9113, 5.1)";
    /// A frame on a stream whose other side has ended (RFC 9113 section 5.1, "half-closed (remote)" and "closed").
    ClosedStream => StreamClosed, "a frame on a closed stream (RFC 9113, 5.1)";
    /// A new stream with an even number, or a lower one than before (RFC 9113 section 5.1.1).
    StreamNumber => ProtocolError, "a new stream has a wrong number (RFC 9113, 5.1.1)";
    /// A frame that belongs to a stream, on stream 0 (RFC 9113 section 5.1.1).
    NeedsStream => ProtocolError, "a frame on stream 0 that needs a stream (RFC 9113, 5.1.1)";
    /// A stream depends on itself (RFC 7540 section 5.3.1; RFC 9113 has no dependencies any more).
    SelfDependency => ProtocolError, "a stream depends on itself (RFC 7540, 5.3.1)";
    /// A frame has no room for its padding (RFC 9113 section 6.1; HEADERS: section 6.2).
    Padding => ProtocolError, "a frame has more padding than bytes (RFC 9113, 6.1)";
    /// DATA without room for the length of its padding (RFC 9113 sections 4.2 and 6.1).
    DataSize => FrameSizeError, "DATA without room for what its flags announce (RFC 9113, 6.1)";
    /// HEADERS without room for what their flags announce (RFC 9113 section 6.2).
    HeadersSize => FrameSizeError, "HEADERS without room for what their flags announce (RFC 9113, 6.2)";
    /// PRIORITY has not five bytes (RFC 9113 section 6.3).
    PrioritySize => FrameSizeError, "PRIORITY has a wrong length (RFC 9113, 6.3)";
    /// RST_STREAM has not four bytes (RFC 9113 section 6.4).
    ResetSize => FrameSizeError, "RST_STREAM has a wrong length (RFC 9113, 6.4)";
    /// SETTINGS on a stream (RFC 9113 section 6.5).
    SettingsOnStream => ProtocolError, "SETTINGS on a stream (RFC 9113, 6.5)";
    /// The bytes of SETTINGS are no multiple of six, or an acknowledgement has some (RFC 9113 section 6.5).
    SettingsSize => FrameSizeError, "SETTINGS have a wrong length (RFC 9113, 6.5)";
    /// A setting has a value that it must not have (RFC 9113 section 6.5.2).
    SettingsValue => ProtocolError, "a setting has a forbidden value (RFC 9113, 6.5.2)";
    /// `SETTINGS_INITIAL_WINDOW_SIZE` is above 2^31 − 1 (RFC 9113 section 6.5.2).
    SettingsWindow => FlowControlError, "the initial window is too large (RFC 9113, 6.5.2)";
    /// PUSH_PROMISE, which only servers may send, and to us none (RFC 9113 sections 6.6 and 8.4).
    Push => ProtocolError, "an unexpected PUSH_PROMISE (RFC 9113, 8.4)";
    /// PING on a stream (RFC 9113 section 6.7).
    PingOnStream => ProtocolError, "PING on a stream (RFC 9113, 6.7)";
    /// PING has not eight bytes (RFC 9113 section 6.7).
    PingSize => FrameSizeError, "PING has a wrong length (RFC 9113, 6.7)";
    /// GOAWAY on a stream (RFC 9113 section 6.8).
    GoAwayOnStream => ProtocolError, "GOAWAY on a stream (RFC 9113, 6.8)";
    /// GOAWAY has fewer than eight bytes (RFC 9113 section 6.8).
    GoAwaySize => FrameSizeError, "GOAWAY is too short (RFC 9113, 6.8)";
    /// WINDOW_UPDATE has not four bytes (RFC 9113 section 6.9).
    WindowUpdateSize => FrameSizeError, "WINDOW_UPDATE has a wrong length (RFC 9113, 6.9)";
    /// WINDOW_UPDATE by nothing (RFC 9113 section 6.9).
    EmptyWindowUpdate => ProtocolError, "WINDOW_UPDATE by 0 (RFC 9113, 6.9)";
    /// A window grows above 2^31 − 1 (RFC 9113 section 6.9.1).
    WindowOverflow => FlowControlError, "a window is too large (RFC 9113, 6.9.1)";
    /// DATA that a window did not allow (RFC 9113 section 6.9.1).
    OverWindow => FlowControlError, "more DATA than the window allows (RFC 9113, 6.9.1)";
    /// A new `SETTINGS_INITIAL_WINDOW_SIZE` makes the window of a stream too large (RFC 9113 section 6.9.2).
    InitialWindowOverflow => FlowControlError, "a setting makes a window too large (RFC 9113, 6.9.2)";
    /// CONTINUATION without a header block (RFC 9113 section 6.10).
    UnexpectedContinuation => ProtocolError, "CONTINUATION without HEADERS (RFC 9113, 6.10)";
    /// Trailers that do not end the message (RFC 9113 section 8.1).
    EndlessTrailers => ProtocolError, "trailers do not end the message (RFC 9113, 8.1)";
    /// A pseudo-field in trailers (RFC 9113 section 8.1).
    PseudoTrailer => ProtocolError, "a pseudo-field in trailers (RFC 9113, 8.1)";
    /// The bodies' bytes are not as many as `content-length` says (RFC 9113 section 8.1.1).
    ContentLength => ProtocolError, "content-length is wrong (RFC 9113, 8.1.1)";
    /// A field's name has bytes that no name may have, as upper-case letters (RFC 9113 section 8.2.1).
    FieldName => ProtocolError, "a field has an invalid name (RFC 9113, 8.2.1)";
    /// A field's value has bytes that no value may have, or white space around it (RFC 9113 section 8.2.1).
    FieldValue => ProtocolError, "a field has an invalid value (RFC 9113, 8.2.1)";
    /// A field that belongs to a connection of HTTP/1, or TE with more than `trailers` (RFC 9113 section 8.2.2).
    ConnectionField => ProtocolError, "a connection-specific field (RFC 9113, 8.2.2)";
    /// A pseudo-field that does not exist, comes twice, or comes after other fields (RFC 9113 section 8.3).
    PseudoField => ProtocolError, "a pseudo-field is unknown, repeated or late (RFC 9113, 8.3)";
    /// A request without `:method`, `:scheme` or `:path` (RFC 9113 section 8.3.1).
    MissingPseudoField => ProtocolError, "a pseudo-field is missing (RFC 9113, 8.3.1)";
    /// `:method`, `:scheme`, `:authority` or `:path` has a value that it cannot have (RFC 9113 section 8.3.1).
    PseudoValue => ProtocolError, "a pseudo-field has an invalid value (RFC 9113, 8.3.1)";
    /// `host` comes twice, or differs from `:authority` (RFC 9113 section 8.3.1).
    HostMismatch => ProtocolError, "host differs from :authority (RFC 9113, 8.3.1)";
    /// A response without a `:status` of three digits, or with 101 (RFC 9113 sections 8.3.2 and 8.6).
    Status => ProtocolError, "a response without a valid :status (RFC 9113, 8.3.2)";
    /// CONNECT, which makes no sense to a server of files (RFC 9113 section 8.5).
    Connect => ProtocolError, "CONNECT is not supported (RFC 9113, 8.5)";
    /// DATA in front of a response's head (RFC 9113 section 8.1).
    DataBeforeHead => ProtocolError, "DATA before the response's head (RFC 9113, 8.1)";
    /// More CONTINUATION frames than a block of a permitted size needs (RFC 9113 section 10.5.1).
    TooManyContinuations => EnhanceYourCalm, "too many CONTINUATION frames (RFC 9113, 10.5.1)";
    /// A field is too long to be decoded (RFC 9113 section 10.5.1).
    FieldTooLong => EnhanceYourCalm, "a field is too long to be decoded (RFC 9113, 10.5.1)";
    /// More resets, of either side, than requests justify (RFC 9113 section 10.5).
    TooManyResets => EnhanceYourCalm, "too many streams are reset (RFC 9113, 10.5)";
    /// Many streams beyond the limit (RFC 9113 section 10.5).
    TooManyRefused => EnhanceYourCalm, "too many streams beyond the limit (RFC 9113, 10.5)";
    /// Too many streams at once (RFC 9113 section 10.5).
    TooManyStreams => EnhanceYourCalm, "too many new streams at once (RFC 9113, 10.5)";
    /// Many bytes for few requests: PING, SETTINGS, empty frames (RFC 9113 section 10.5).
    UselessFrames => EnhanceYourCalm, "too many frames that ask for nothing (RFC 9113, 10.5)";
    /// PRIORITY_UPDATE on a stream, for stream 0 or for a push (RFC 9218 section 7.1).
    PriorityUpdateStream => ProtocolError, "PRIORITY_UPDATE for a wrong stream (RFC 9218, 7.1)";
    /// PRIORITY_UPDATE has fewer than four bytes (RFC 9218 section 7.1).
    PriorityUpdateSize => FrameSizeError, "PRIORITY_UPDATE is too short (RFC 9218, 7.1)";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_codes_and_back() {
        for number in 0..=0xd {
            assert_eq!(ErrorCode::of(number) as u32, number);
        }
        assert_eq!(ErrorCode::of(0xe), ErrorCode::InternalError);
    }

    #[test]
    fn each_code_has_its_name() {
        let names: Vec<_> = (0..=0xd).map(|number| ErrorCode::of(number).name()).collect();
        assert_eq!(
            (names[0x1], names[0x7], names[0xb]),
            ("PROTOCOL_ERROR", "REFUSED_STREAM", "ENHANCE_YOUR_CALM")
        );
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
