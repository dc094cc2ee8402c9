//! Frames that control the connection: SETTINGS, PING, PRIORITY and WINDOW_UPDATE.

use super::ClientConnection;
use super::receive::ClientFrameResult;
use crate::error::ProtocolFault;
use crate::frame::{self, FrameHeader, MOST_31, StreamId, flag, kind};
use crate::settings::SettingsChange;
use crate::streams::StreamRecord;

impl<S> ClientConnection<S> {
    /// Takes SETTINGS, PING, PRIORITY or WINDOW_UPDATE.
    pub(super) fn take_control(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        match header.kind {
            kind::SETTINGS if header.stream != 0 => Err(ProtocolFault::SettingsOnStream),
            kind::SETTINGS if header.has(flag::ACK) && payload.is_empty() => Ok(None),
            kind::SETTINGS if header.has(flag::ACK) => Err(ProtocolFault::SettingsSize),
            kind::SETTINGS => {
                self.take_settings(SettingsChange::read(payload, true)?)?;
                frame::push(out, kind::SETTINGS, flag::ACK, 0, &[]);
                Ok(None)
            }
            kind::PING if header.stream != 0 => Err(ProtocolFault::PingOnStream),
            kind::PING if payload.len() != 8 => Err(ProtocolFault::PingSize),
            kind::PING if header.has(flag::ACK) => Ok(None),
            kind::PING => {
                frame::push(out, kind::PING, flag::ACK, 0, payload);
                Ok(None)
            }
            kind::PRIORITY if header.stream == 0 => Err(ProtocolFault::NeedsStream),
            kind::PRIORITY if payload.len() != 5 => Err(ProtocolFault::PrioritySize),
            kind::PRIORITY => Ok(None),
            _ => self.take_window_update(header.stream, payload, out),
        }
    }

    fn take_settings(&mut self, change: SettingsChange) -> Result<(), ProtocolFault> {
        if let Some(window) = change.window {
            self.set_first_window(window)?;
        }
        self.table_update.allowed(change.table);
        // The first SETTINGS of a server without limit lift that of the beginning.
        let usual = if self.has_settings { self.most_open } else { u32::MAX };
        self.most_open = change.streams.unwrap_or(usual);
        self.has_settings = true;
        Ok(())
    }

    /// Changes the window that streams begin with, and those of bodies under way by the difference (RFC 9113 section 6.9.2).
    fn set_first_window(&mut self, window: u32) -> Result<(), ProtocolFault> {
        let change = i64::from(window) - i64::from(self.first_window);
        self.first_window = window;
        self.streams.shift_send_windows(change, StreamRecord::uploads)
    }

    fn take_window_update(
        &mut self,
        stream: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> ClientFrameResult {
        let by = payload.try_into().map_err(|_| ProtocolFault::WindowUpdateSize)?;
        let by = u32::from_be_bytes(by) & MOST_31;
        if stream != 0 {
            self.check_began(stream)?;
        }
        if by == 0 {
            return Err(ProtocolFault::EmptyWindowUpdate);
        }
        if stream == 0 {
            let window = Some(self.send_window + by).filter(|window| *window <= MOST_31);
            self.send_window = window.ok_or(ProtocolFault::WindowOverflow)?;
            return Ok(None);
        }
        // The window of a body that was sent as a whole means nothing any more.
        let record = self.streams.get(StreamId(stream)).filter(|record| record.uploads());
        let Some(record) = record else { return Ok(None) };
        match record.send_window.checked_add(by as i32) {
            Some(window) => record.send_window = window,
            None => return Ok(self.stream_fault(stream, ProtocolFault::WindowOverflow, out)),
        }
        Ok(None)
    }
}
