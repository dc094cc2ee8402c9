//! Users whose credentials have been verified, and for how long that counts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::auth::credentials::CredentialsTag;

/// Verified credentials, each for some time after its last use. When there are too many, the one that was used longest
/// ago makes room. `N`: the name of a user.
pub(super) struct RememberedUsers<N> {
    most: usize,
    lasts: Duration,
    /// By the prefix of the tag.
    users: HashMap<u64, RememberedUser<N>>,
}

struct RememberedUser<N> {
    tag: CredentialsTag,
    name: N,
    used: Instant,
}

impl<N> RememberedUsers<N> {
    /// At most `most` users, each for as long as `lasts`.
    pub(super) fn new(most: usize, lasts: Duration) -> RememberedUsers<N> {
        RememberedUsers { most, lasts, users: HashMap::new() }
    }

    /// The name of the user with these credentials, if they are remembered.
    pub(super) fn find(&self, tag: &CredentialsTag, now: Instant) -> Option<&N> {
        let user = self.users.get(&tag.prefix()).filter(|it| it.tag.is(tag))?;
        (now.saturating_duration_since(user.used) < self.lasts).then_some(&user.name)
    }

    /// The same where this is a use, from which on the credentials are remembered anew.
    pub(super) fn use_of(&mut self, tag: &CredentialsTag, now: Instant) -> Option<&N> {
        self.find(tag, now)?;
        let user = self.users.get_mut(&tag.prefix())?;
        user.used = user.used.max(now);
        Some(&user.name)
    }

    /// Remembers credentials that have just been verified. Looks at all of them if there are too many: that is nothing
    /// beside the time that the verification took.
    pub(super) fn remember(&mut self, tag: CredentialsTag, name: N, now: Instant) {
        self.users.insert(tag.prefix(), RememberedUser { tag, name, used: now });
        while self.users.len() > self.most {
            let oldest = self.users.iter().min_by_key(|(_, user)| user.used);
            let Some((&oldest, _)) = oldest else { return };
            self.users.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::credentials::TagKey;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn use_extends_the_time_and_the_one_used_longest_ago_makes_room() {
        let key = TagKey::random().unwrap();
        let tags: Vec<CredentialsTag> =
            ["a:", "b:", "c:", "d:"].iter().map(|pair| key.tag(pair.as_bytes())).collect();
        let mut users = RememberedUsers::new(3, 5 * MINUTE);
        let start = Instant::now();
        for (number, tag) in tags.iter().enumerate().take(3) {
            users.remember(*tag, number, start + MINUTE * number as u32);
        }
        for minutes in [4, 8, 12] {
            assert_eq!(users.use_of(&tags[0], start + MINUTE * minutes), Some(&0));
        }
        assert_eq!(users.find(&tags[1], start + MINUTE * 5), Some(&1));
        assert_eq!(users.find(&tags[1], start + MINUTE * 6), None);
        assert_eq!(users.use_of(&tags[1], start + MINUTE * 6), None);
        let now = start + MINUTE * 6;
        users.use_of(&tags[2], now);
        users.remember(tags[3], 3, now);
        // Of all four, the second was used longest ago.
        assert_eq!(users.users.len(), 3);
        assert_eq!([0, 2, 3].map(|it| users.find(&tags[it], now).copied()), [0, 2, 3].map(Some));
        assert_eq!(users.find(&key.tag(b"e:"), now), None);
    }
}
