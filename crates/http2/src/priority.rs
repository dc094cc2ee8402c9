//! Priorities of responses (RFC 9218): the field `priority`, and the value of PRIORITY_UPDATE.

/// When a response is wanted (RFC 9218 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamPriority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether parts of the response are of use: such ones share the connection.
    pub is_incremental: bool,
}

impl Default for StreamPriority {
    /// Urgency 3, not incremental.
    fn default() -> StreamPriority {
        StreamPriority { urgency: 3, is_incremental: false }
    }
}

impl StreamPriority {
    /// Reads a value as `u=2, i`: a dictionary of structured fields (RFC 9651 section 3.2). What is not there stays as it is; other
    /// keys, and values that these keys do not have, are ignored (RFC 9218 section 4).
    pub fn read(&mut self, value: &[u8]) {
        for member in members(value) {
            // Parameters of a member mean nothing here.
            let member = member.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.is_incremental = true,
                b"i=?0" => self.is_incremental = false,
                _ => {}
            }
        }
    }
}

/// The members of a dictionary: commas within strings part nothing.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut in_string, mut is_escaped) = (false, false);
    value.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' => return !in_string,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_and_increments_are_read() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=1;x=y", 1, true),
            ("i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, i=1", 3, false),
            ("u=1, u=2", 2, false),
            ("a=\"u=1,i,\\\"u=2\", u=5", 5, false),
            (" u=4 ,\ti=?1 ", 4, true),
        ] {
            let mut priority = StreamPriority::default();
            priority.read(value.as_bytes());
            assert_eq!(priority, StreamPriority { urgency, is_incremental }, "{value}");
        }
    }
}
