//! Settings (RFC 9113 section 6.5): what the peer has chosen, and how ours are written.

use crate::error::ProtocolFault;
use crate::frame::{self, FRAME_MOST, MOST_31, kind};

/// The settings (RFC 9113 section 6.5.2).
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(crate) const ENABLE_PUSH: u16 = 0x2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441 section 3.
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218 section 2.1.
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// What one frame of SETTINGS changes. A setting that it has several times counts with its last value, so that a long frame
/// causes no more work than a short one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettingsChange {
    pub(crate) table: Option<u32>,
    pub(crate) streams: Option<u32>,
    pub(crate) window: Option<u32>,
    pub(crate) frame: Option<u32>,
}

impl SettingsChange {
    /// Reads the payload of SETTINGS. `from_server`: a server sent it.
    ///
    /// # Errors
    /// A wrong length, or a value that a setting must not have.
    pub(crate) fn read(payload: &[u8], from_server: bool) -> Result<SettingsChange, ProtocolFault> {
        let (pairs, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ProtocolFault::SettingsSize);
        }
        let mut change = SettingsChange::default();
        for [a, b, value @ ..] in pairs {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                setting::HEADER_TABLE_SIZE => change.table = Some(value),
                // A server must not allow pushes (RFC 9113 section 6.5.2).
                setting::ENABLE_PUSH if value > u32::from(!from_server) => {
                    return Err(ProtocolFault::SettingsValue);
                }
                setting::MAX_CONCURRENT_STREAMS => change.streams = Some(value),
                setting::INITIAL_WINDOW_SIZE if value > MOST_31 => {
                    return Err(ProtocolFault::SettingsWindow);
                }
                setting::INITIAL_WINDOW_SIZE => change.window = Some(value),
                setting::MAX_FRAME_SIZE if value < FRAME_MOST as u32 || value >= 1 << 24 => {
                    return Err(ProtocolFault::SettingsValue);
                }
                setting::MAX_FRAME_SIZE => change.frame = Some(value),
                setting::ENABLE_CONNECT_PROTOCOL | setting::NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(ProtocolFault::SettingsValue);
                }
                // Unknown ones are ignored.
                _ => {}
            }
        }
        Ok(change)
    }
}

/// Appends SETTINGS.
pub(crate) fn push(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let len = settings.len() * 6;
    frame::FrameHeader { len, kind: kind::SETTINGS, flags: 0, stream: 0 }.push(out);
    for (setting, value) in settings {
        out.extend_from_slice(&setting.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &[(u16, u32)]) -> Result<SettingsChange, ProtocolFault> {
        let mut out = Vec::new();
        push(&mut out, settings);
        SettingsChange::read(&out[frame::FRAME_HEADER..], false)
    }

    #[test]
    fn the_last_value_counts_and_unknown_settings_do_not() {
        let change = read(&[(4, 1), (1, 0), (4, 2), (0xfff, 9), (3, 7), (5, 1 << 14)]).unwrap();
        let expected = SettingsChange {
            table: Some(0),
            streams: Some(7),
            window: Some(2),
            frame: Some(1 << 14),
        };
        assert_eq!(change, expected);
        assert_eq!(read(&[]), Ok(SettingsChange::default()));
    }

    #[test]
    fn servers_allow_no_pushes() {
        assert!(SettingsChange::read(&[0, 2, 0, 0, 0, 0], true).is_ok());
        let wrong = Err(ProtocolFault::SettingsValue);
        assert_eq!(SettingsChange::read(&[0, 2, 0, 0, 0, 1], true), wrong);
        assert!(SettingsChange::read(&[0, 2, 0, 0, 0, 1], false).is_ok());
    }
}
