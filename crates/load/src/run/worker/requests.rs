//! The requests that a worker sends: their bytes, which one is next, and how responses to each begin.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use crate::plan::options::LoadPlan;
use crate::plan::order::Chooser;
use crate::plan::request::Prepared;
use crate::plan::shape::LoadShare;
use crate::run::reader::RepeatedResponse;

/// The number of requests for which the head of the last response is kept. With more requests than
/// that, several of them share an entry.
const REPEATED_RESPONSES: usize = 32;

/// The requests of one worker, by origin.
pub(crate) struct RequestSet {
    /// The bytes of the requests, by origin.
    prepared: Vec<Vec<Prepared<Rc<[u8]>>>>,
    /// The heads of the last responses, by the sum of origin and request number.
    repeated: [RefCell<RepeatedResponse>; REPEATED_RESPONSES],
    /// Chooses the next request to an origin, by origin.
    choosers: Vec<Chooser>,
    /// Chooses the origin of the next connection; `None`: each connection has its own.
    origins: Option<Chooser>,
}

impl RequestSet {
    pub(crate) fn new(plan: &LoadPlan, share: LoadShare) -> RequestSet {
        let origins = &plan.origins;
        RequestSet {
            prepared: origins.list.iter().map(|origin| origin.shared_requests()).collect(),
            repeated: Default::default(),
            choosers: origins.request_choosers(plan.seed, share),
            origins: origins.chooser(plan.seed, share),
        }
    }

    /// The origin of the next connection; `None`: a connection always goes to its own.
    pub(crate) fn pick_origin(&self) -> Option<usize> {
        self.origins.as_ref().map(Chooser::pick)
    }

    /// The number of the next request to send to `origin`.
    pub(crate) fn pick(&self, origin: usize) -> usize {
        self.choosers[origin].pick()
    }

    /// Request `number` to `origin`.
    pub(crate) fn get(&self, origin: usize, number: usize) -> &Prepared<Rc<[u8]>> {
        &self.prepared[origin][number]
    }

    /// The head of the last response to request `number` to `origin`, or to another request that
    /// shares the entry.
    pub(crate) fn repeated_response(
        &self,
        origin: usize,
        number: usize,
    ) -> RefMut<'_, RepeatedResponse> {
        self.repeated[(origin + number) % REPEATED_RESPONSES].borrow_mut()
    }
}
