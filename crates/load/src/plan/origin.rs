//! The servers of a run, what is asked of each, and which connections go there.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use drover_sys::socket::Address;
use drover_tls::client::ClientTls;
use twox_hash::XxHash64;

use crate::plan::endpoints::Endpoints;
use crate::plan::http2::HttpProtocol;
use crate::plan::order::{AliasTable, Chooser, Order};
use crate::plan::random::Purpose;
use crate::plan::request::{Prepared, RequestTemplate};
use crate::plan::shape::LoadShare;
use crate::plan::sources::Sources;
use crate::plan::tls::TargetTlsOptions;
use crate::warning::Warning;
use drover_usage::UsageError;

/// One server and what is asked of it; a connection goes to one origin.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Host and port, for people.
    server: String,
    /// The host that the server's certificate must have; `None`: its URLs are `http://` ones.
    tls_host: Option<String>,
    /// TLS with the server, once it is set up; `None`: none is spoken.
    pub(crate) tls: Option<ClientTls>,
    pub(crate) endpoints: Endpoints,
    /// The bytes of each request.
    requests: Vec<Prepared>,
    weights: Vec<f64>,
    /// The probability of each request; `None`: requests are sent in turn.
    table: Option<AliasTable>,
}

impl Origin {
    /// The requests as a worker's connections share them.
    pub(crate) fn shared_requests(&self) -> Vec<Prepared<Rc<[u8]>>> {
        self.requests.iter().map(Prepared::shared).collect()
    }
}

/// All servers of a run.
pub(crate) struct Origins {
    pub(crate) list: Vec<Origin>,
    /// The server of each connection that sends requests, and of each that is held.
    measured: Vec<u32>,
    idle: Vec<u32>,
    /// The probability of each server, for connections that are opened for a few requests.
    between: Option<AliasTable>,
}

impl Origins {
    /// Resolves the servers of `requests`, writes the bytes of each request, and deals the
    /// connections out. URLs of the same scheme, host, with its zone, and port share an origin.
    ///
    /// # Errors
    /// A host without an address.
    pub(crate) fn new(
        requests: &[RequestTemplate],
        order: &Order,
        unix: Option<&Path>,
        protocol: HttpProtocol,
    ) -> anyhow::Result<Origins> {
        let mut list: Vec<Origin> = Vec::new();
        let mut numbers: HashMap<(bool, &str, u16), usize> = HashMap::new();
        for (place, request) in requests.iter().enumerate() {
            let url = &request.url;
            let server = (url.is_https(), url.host(), url.port());
            let number = match numbers.get(&server) {
                Some(number) => *number,
                None => {
                    list.push(Origin {
                        server: url.server(),
                        tls_host: url.is_https().then(|| url.name().to_owned()),
                        tls: None,
                        endpoints: Endpoints::resolve(url, unix)?,
                        requests: Vec::new(),
                        weights: Vec::new(),
                        table: None,
                    });
                    numbers.insert(server, list.len() - 1);
                    list.len() - 1
                }
            };
            list[number].requests.push(match protocol {
                HttpProtocol::Http1 => request.prepare(),
                HttpProtocol::Http2 { .. } => request.prepare_http2(),
            });
            list[number].weights.push(order.weight(place));
        }
        let mut between = None;
        if *order != Order::Sequential {
            // A server gets no request if none of its URLs has a weight.
            list.retain(|origin| origin.weights.iter().sum::<f64>() > 0.0);
            for origin in &mut list {
                origin.table = AliasTable::new(origin.weights.clone());
            }
            between = AliasTable::new(list.iter().map(Origin::weight).collect());
        }
        Ok(Origins { list, measured: Vec::new(), idle: Vec::new(), between })
    }

    /// Sets TLS up for the servers of `https://` URLs; a thread has at most `connections`, which speak `protocol`.
    ///
    /// # Errors
    /// A [`UsageError`] for what TLS cannot be spoken with.
    pub(crate) fn set_up_tls(
        &mut self,
        options: &TargetTlsOptions,
        connections: u32,
        protocol: HttpProtocol,
    ) -> anyhow::Result<()> {
        let mut first: Option<ClientTls> = None;
        for origin in &mut self.list {
            let Some(own) = &origin.tls_host else { continue };
            let host = options.server_name.as_ref().unwrap_or(own);
            // Authorities and identity are read once.
            let tls = match &first {
                Some(first) => first.to(host)?,
                None => first
                    .insert(ClientTls::new(host, &options.client(connections, protocol))?)
                    .clone(),
            };
            origin.tls = Some(tls);
        }
        Ok(())
    }

    /// Whether TLS is spoken with any of the servers.
    pub(crate) fn any_tls(&self) -> bool {
        self.list.iter().any(|origin| origin.tls.is_some())
    }

    /// Deals connections out to the servers, in proportion to the weights of their URLs, and finds
    /// the addresses that they come from. `churn`: a connection is opened for a few requests, and
    /// then again for others. Returns a warning about what will run short.
    pub(crate) fn deal(
        &mut self,
        measured: u32,
        idle: u32,
        churn: bool,
        find: impl Fn(&Address, u32) -> Result<(Sources, Option<Warning>), UsageError>,
    ) -> Result<Vec<Warning>, UsageError> {
        if !churn {
            self.between = None;
        }
        let weights = match self.list.iter().any(|origin| origin.table.is_some()) {
            true => self.list.iter().map(Origin::weight).collect(),
            // In turn: each server as many, however many URLs it has.
            false => vec![1.0; self.list.len()],
        };
        self.measured = deal(&weights, measured);
        self.idle = deal(&vec![1.0; self.list.len()], idle);
        let draws = self.between.is_some();
        let mut shortages = Vec::new();
        for (number, origin) in self.list.iter_mut().enumerate() {
            let own = |dealt: &[u32]| dealt.iter().filter(|&&to| to as usize == number).count();
            let sending = if draws { measured } else { own(&self.measured) as u32 };
            if measured > 0 && sending == 0 {
                return Err(UsageError::new(format!(
                    "--connections: of {measured} connections none goes to {}, which has a small \
                     part of the URLs or their weights: ask for more, or let connections change \
                     servers (--calls-per-connection)",
                    origin.server
                )));
            }
            let connections = sending + own(&self.idle) as u32;
            shortages.extend(origin.endpoints.find_sources(|to| find(to, connections))?);
        }
        Ok(shortages)
    }

    /// Sets the body that every response must have.
    pub(crate) fn expect_body(&mut self, hash: u64) {
        for request in self.list.iter_mut().flat_map(|origin| &mut origin.requests) {
            request.body = Arc::new(OnceLock::from(hash));
        }
    }

    /// The server of measured connection `number` of all.
    pub(crate) fn of_measured(&self, number: u32) -> usize {
        self.measured[number as usize] as usize
    }

    /// The server of idle connection `number` of all.
    pub(crate) fn of_idle(&self, number: u32) -> usize {
        self.idle[number as usize] as usize
    }

    /// A worker's picks among the requests to each server. Where they are sent in turn, the workers
    /// that have connections to a server share its requests; others never send one there.
    pub(crate) fn request_choosers(&self, seed: u64, share: LoadShare) -> Vec<Chooser> {
        let mut workers = vec![BTreeSet::new(); self.list.len()];
        for (place, origin) in (0..).zip(&self.measured) {
            workers[*origin as usize].insert(share.worker_of(place));
        }
        let in_turn = |origin: &Origin, workers: &BTreeSet<u32>| {
            let before = workers.range(..share.worker).count() as u32;
            let share = LoadShare { worker: before, workers: (workers.len() as u32).max(1) };
            Chooser::in_turn(origin.requests.len(), share)
        };
        let picks = (0..).zip(self.list.iter().zip(&workers));
        let picks = picks.map(|(number, (origin, workers))| match &origin.table {
            None => in_turn(origin, workers),
            Some(table) => Chooser::drawn(table, seed, share, Purpose::Requests(number)),
        });
        picks.collect()
    }

    /// A worker's picks of the server that the next connection is opened to; `None`: each
    /// connection has its own.
    pub(crate) fn chooser(&self, seed: u64, share: LoadShare) -> Option<Chooser> {
        self.between.as_ref().map(|table| Chooser::drawn(table, seed, share, Purpose::Servers))
    }
}

impl Origin {
    fn weight(&self) -> f64 {
        self.weights.iter().sum()
    }
}

/// Deals `count` things to places, each time to the one that is farthest behind its part.
fn deal(weights: &[f64], count: u32) -> Vec<u32> {
    let sum: f64 = weights.iter().sum();
    let parts: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    let mut dealt = vec![0.0; weights.len()];
    let behind = |place: usize, next: f64, dealt: &[f64]| parts[place] * next - dealt[place];
    (1..=count)
        .map(|next| {
            let next = f64::from(next);
            let mut to = 0;
            for place in 1..weights.len() {
                // A little more than equal, so that rounding does not decide among equals.
                if behind(place, next, &dealt) > behind(to, next, &dealt) + 1e-9 {
                    to = place;
                }
            }
            dealt[to] += 1.0;
            to as u32
        })
        .collect()
}

/// The hash of a whole body.
pub(crate) fn body_hash(body: &[u8]) -> u64 {
    XxHash64::oneshot(0, body)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_tls::client::Trust;

    use super::*;
    use crate::plan::request::RequestContent;

    fn requests(urls: &[&str]) -> Vec<RequestTemplate> {
        let content = Arc::new(RequestContent::default());
        let request =
            |url: &&str| RequestTemplate { url: url.parse().unwrap(), content: content.clone() };
        urls.iter().map(request).collect()
    }

    fn found(_: &Address, _: u32) -> Result<(Sources, Option<Warning>), UsageError> {
        Ok((Sources::Default, None))
    }

    #[test]
    fn urls_of_one_server_share_an_origin() {
        let requests =
            requests(&["http://127.0.0.1:8/a", "http://127.0.0.1:9/", "http://127.0.0.1:8/b"]);
        let origins =
            Origins::new(&requests, &Order::Sequential, None, HttpProtocol::Http1).unwrap();
        let addresses: Vec<_> =
            origins.list.iter().map(|origin| origin.endpoints.current()).collect();
        let expected = ["127.0.0.1:8", "127.0.0.1:9"].map(|a| Address::Ip(a.parse().unwrap()));
        assert_eq!(addresses, expected.iter().collect::<Vec<_>>());
        assert_eq!(origins.list[0].requests[1], requests[2].prepare());

        let path = Path::new("/tmp/socket");
        let origins =
            Origins::new(&requests[..1], &Order::Sequential, Some(path), HttpProtocol::Http1)
                .unwrap();
        assert_eq!(*origins.list[0].endpoints.current(), Address::Unix(path.to_owned()));
        assert_eq!(origins.list[0].requests[0], requests[0].prepare());
    }

    #[test]
    fn urls_of_another_scheme_are_of_another_server() {
        let requests =
            requests(&["https://127.0.0.1:8/a", "http://127.0.0.1:8/b", "https://[::1]/"]);
        let mut origins =
            Origins::new(&requests, &Order::Sequential, None, HttpProtocol::Http1).unwrap();
        assert!(!origins.any_tls());
        let options = TargetTlsOptions { trust: Trust::Anybody, ..TargetTlsOptions::default() };
        origins.set_up_tls(&options, 1, HttpProtocol::Http1).unwrap();
        let with_tls: Vec<_> = origins.list.iter().map(|origin| origin.tls.is_some()).collect();
        assert_eq!(with_tls, [true, false, true]);
        assert!(origins.any_tls());
        let server_name = Some("no name".to_string());
        let error = origins.set_up_tls(
            &TargetTlsOptions { server_name, ..options },
            1,
            HttpProtocol::Http1,
        );
        assert!(error.unwrap_err().to_string().contains("'no name' is no host name"));
    }

    /// An address of a link means another host on each link, and the Host field cannot say which.
    #[test]
    fn urls_with_another_zone_are_of_another_server() {
        let urls = ["[fe80::1%lo]:8/a", "[fe80::1%1]:8/b", "http://[fe80::1%25lo]:8/c"];
        let requests = requests(&urls);
        assert!(requests.iter().all(|request| request.url.authority == "[fe80::1]:8"));
        let origins =
            Origins::new(&requests, &Order::Sequential, None, HttpProtocol::Http1).unwrap();
        let counts: Vec<_> = origins.list.iter().map(|origin| origin.requests.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn connections_are_dealt_in_turn_or_by_weight() {
        assert_eq!(deal(&[1.0; 3], 7), [0, 1, 2, 0, 1, 2, 0]);
        let dealt = deal(&[3.0, 1.0], 8);
        assert_eq!(dealt.iter().filter(|&&to| to == 0).count(), 6);
        // At any moment both have their part.
        assert_eq!(dealt[..4].iter().filter(|&&to| to == 0).count(), 3);
        assert!(deal(&[], 0).is_empty());
    }

    #[test]
    fn weights_decide_between_servers() {
        let requests = requests(&["http://127.0.0.1:8/", "http://127.0.0.1:9/"]);
        let order = Order::Weighted(vec![9.0, 1.0]);
        let new = |order| Origins::new(&requests, order, None, HttpProtocol::Http1).unwrap();

        let mut origins = new(&order);
        origins.deal(20, 2, false, found).unwrap();
        let second = (0..20).filter(|&number| origins.of_measured(number) == 1).count();
        assert_eq!((second, origins.of_idle(1)), (2, 1));
        assert!(origins.chooser(1, LoadShare { worker: 0, workers: 1 }).is_none());
        let error = origins.deal(2, 0, false, found).unwrap_err().to_string();
        assert!(error.contains("--connections") && error.contains("127.0.0.1:9"), "{error}");

        // Connections of a few requests each draw their server, so that the weights are exact.
        let mut origins = new(&order);
        origins.deal(2, 0, true, found).unwrap();
        let chooser = origins.chooser(1, LoadShare { worker: 0, workers: 1 }).unwrap();
        let second = (0..10_000).filter(|_| chooser.pick() == 1).count();
        assert!((880..1120).contains(&second), "{second}");

        // One that is never asked gets no connection.
        let origins = new(&Order::Weighted(vec![0.0, 1.0]));
        assert_eq!(origins.list.len(), 1);
    }
}
