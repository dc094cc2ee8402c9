//! What waits to be done for many clients, taken in turn: whoever asks for much waits for it alone.
//!
//! Each client has its turn, one job at a time, however many jobs it has queued; among a client's own jobs, each name has
//! its turn. When the queue is full, a job of those who have most there makes room for one of those who have less.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::proxies::client::ClientAddress;

/// Who has a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueClient {
    /// An IPv4 address, or an IPv6 network of 64 bits.
    Network(IpAddr),
    /// All peers of unix(7) sockets, and those whose address is not known any more.
    Nameless,
}

impl From<ClientAddress> for QueueClient {
    fn from(client: ClientAddress) -> QueueClient {
        client.network().map_or(QueueClient::Nameless, QueueClient::Network)
    }
}

/// A queue of at most so many jobs. With the few that there are, looking at all of them is cheap.
pub(super) struct FairQueue<J> {
    most: usize,
    /// Those who have jobs, in the order of their turns.
    clients: VecDeque<ClientJobs<J>>,
}

/// The jobs of one client, at least one.
struct ClientJobs<J> {
    client: QueueClient,
    /// By the tag of the name that they are for, in the order of the names' turns. None is empty.
    names: VecDeque<(u64, VecDeque<J>)>,
}

impl<J> ClientJobs<J> {
    fn len(&self) -> usize {
        self.names.iter().map(|(_, jobs)| jobs.len()).sum()
    }

    fn len_of(&self, name: u64) -> usize {
        self.names.iter().find(|(other, _)| *other == name).map_or(0, |(_, jobs)| jobs.len())
    }
}

impl<J> FairQueue<J> {
    pub(super) fn new(most: usize) -> FairQueue<J> {
        FairQueue { most, clients: VecDeque::new() }
    }

    fn len(&self) -> usize {
        self.clients.iter().map(ClientJobs::len).sum()
    }

    /// Queues a job of a client. `Ok(Some)`: this one has made room for it.
    ///
    /// # Errors
    /// The job, if nobody has more in the full queue than whoever asks.
    pub(super) fn push(&mut self, client: QueueClient, name: u64, job: J) -> Result<Option<J>, J> {
        let mut displaced = None;
        if self.len() >= self.most {
            displaced = self.displace(client, name);
            if displaced.is_none() {
                return Err(job);
            }
        }
        match self.clients.iter_mut().find(|it| it.client == client) {
            None => {
                let names = VecDeque::from([(name, VecDeque::from([job]))]);
                self.clients.push_back(ClientJobs { client, names });
            }
            Some(jobs) => match jobs.names.iter_mut().find(|(other, _)| *other == name) {
                None => jobs.names.push_back((name, VecDeque::from([job]))),
                Some((_, jobs)) => jobs.push_back(job),
            },
        }
        Ok(displaced)
    }

    /// Takes the newest job of those who have most, if that is more than the client will have with one job more.
    fn displace(&mut self, client: QueueClient, name: u64) -> Option<J> {
        let own = self.clients.iter().find(|it| it.client == client);
        let (own, own_of_name) = own.map_or((0, 0), |it| (it.len(), it.len_of(name)));
        let (at, jobs) = self.clients.iter_mut().enumerate().max_by_key(|(_, it)| it.len())?;
        let is_own = jobs.client == client;
        if !is_own && jobs.len() <= own + 1 {
            return None;
        }
        let names = jobs.names.iter_mut().enumerate();
        let (at_name, (_, of_name)) = names.max_by_key(|(_, (_, jobs))| jobs.len())?;
        if is_own && of_name.len() <= own_of_name + 1 {
            return None;
        }
        let displaced = of_name.pop_back();
        if of_name.is_empty() {
            jobs.names.remove(at_name);
        }
        if jobs.names.is_empty() {
            self.clients.remove(at);
        }
        displaced
    }

    /// Takes the job whose turn it is.
    pub(super) fn pop(&mut self) -> Option<J> {
        let mut jobs = self.clients.pop_front()?;
        let (name, mut of_name) = jobs.names.pop_front()?;
        let job = of_name.pop_front();
        if !of_name.is_empty() {
            jobs.names.push_back((name, of_name));
        }
        if !jobs.names.is_empty() {
            self.clients.push_back(jobs);
        }
        job
    }

    /// All jobs.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut J> {
        let names = self.clients.iter_mut().flat_map(|it| it.names.iter_mut());
        names.flat_map(|(_, jobs)| jobs.iter_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> QueueClient {
        QueueClient::from(ClientAddress::Ip(text.parse().unwrap()))
    }

    /// A queue of `most` jobs, into which each job is pushed by a client for a name. Returned with it: what was displaced,
    /// and what was refused.
    fn queue(most: usize, jobs: &[(&str, u64, &'static str)]) -> (FairQueue<&'static str>, String) {
        let mut queue = FairQueue::new(most);
        let mut told = String::new();
        for (from, name, job) in jobs {
            match queue.push(client(from), *name, *job) {
                Ok(None) => {}
                Ok(Some(displaced)) => told += &format!("-{displaced}"),
                Err(refused) => told += &format!("!{refused}"),
            }
            assert!(queue.len() <= most);
        }
        (queue, told)
    }

    fn taken(mut queue: FairQueue<&str>) -> String {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    const A: &str = "192.0.2.1";
    const B: &str = "192.0.2.2";

    #[test]
    fn clients_take_turns_and_so_do_names_of_one() {
        let (all, told) = queue(
            9,
            &[(A, 1, "a"), (A, 1, "b"), (A, 1, "c"), (A, 2, "d"), (B, 1, "x"), (B, 1, "y")],
        );
        assert_eq!((told.as_str(), taken(all).as_str()), ("", "axdybc"));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let (all, _) = queue(
            9,
            &[("2001:db8::1", 1, "a"), ("2001:db8::2", 1, "b"), ("2001:db8:0:1::1", 1, "x")],
        );
        assert_eq!(taken(all), "axb");
        assert_eq!(client("::ffff:192.0.2.1"), client(A));
        assert_eq!(QueueClient::from(ClientAddress::Unix), QueueClient::Nameless);
    }

    #[test]
    fn who_has_most_in_a_full_queue_makes_room() {
        let full = [(A, 1, "a"), (A, 2, "b"), (A, 2, "c"), (A, 2, "d")];
        let (all, told) = queue(4, &[&full[..], &[(B, 1, "x")]].concat());
        assert_eq!((told.as_str(), taken(all).as_str()), ("-d", "axbc"));
        let (all, told) = queue(4, &[&full[..], &[(B, 1, "x"), (B, 1, "y"), (B, 1, "z")]].concat());
        assert_eq!((told.as_str(), taken(all).as_str()), ("-d-c!z", "axby"));
        // Of the same client, a name that has less.
        let (all, told) = queue(4, &[&full[..], &[(A, 3, "e"), (A, 3, "f"), (A, 2, "g")]].concat());
        assert_eq!((told.as_str(), taken(all).as_str()), ("-d!f!g", "abec"));
    }

    #[test]
    fn nobody_makes_room_for_one_who_would_have_as_much() {
        let (all, told) = queue(2, &[(A, 1, "a"), (B, 1, "x"), ("192.0.2.3", 1, "r"), (A, 2, "s")]);
        assert_eq!((told.as_str(), taken(all).as_str()), ("!r!s", "ax"));
        let (mut none, told) = queue(0, &[(A, 1, "a")]);
        assert_eq!((told.as_str(), none.pop()), ("!a", None));
    }
}
