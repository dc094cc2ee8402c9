//! HPACK, the header compression of HTTP/2 (RFC 7541): decoding with everything that it has, encoding with the static table alone.

mod decoder;
mod dynamic_table;
mod encode;
mod huffman;
mod integer;
mod static_table;

pub use decoder::{FieldSink, HpackDecoder};
pub(crate) use encode::TableUpdate;
pub use encode::{push_field, push_plain_field, push_status};

/// The size that the dynamic table of either side has at first, in bytes as RFC 7541 section 4.1 counts them (RFC 9113 section
/// 6.5.2, `SETTINGS_HEADER_TABLE_SIZE`).
pub const TABLE_SIZE: usize = 4096;

/// What each field of a list counts beside its name and value, in bytes (RFC 9113 section 6.5.2, `SETTINGS_MAX_HEADER_LIST_SIZE`).
pub const FIELD_OVERHEAD: usize = 32;

/// What is wrong with a header block: a connection error `COMPRESSION_ERROR` (RFC 9113 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackFault {
    /// An index that neither table has (RFC 7541 section 2.3.3).
    Index,
    /// An integer that is larger than any that a block can need (RFC 7541 section 5.1).
    Integer,
    /// A string that is not in the Huffman code, or has too much or wrong padding (RFC 7541 section 5.2).
    Huffman,
    /// An update of the table's size that is too large, missing, or behind a field (RFC 7541 sections 4.2 and 6.3).
    TableSize,
    /// The block ends within a field (RFC 9113 section 4.3).
    Truncated,
}
