//! What could differ between mechanisms, on each of them.

use drover_mech::mechanisms::Mechanism;

use crate::connections::{self, letters};
use crate::harness::{Server, on_every_mechanism};
use crate::{stopping, time_outs};

fn on_each(flags: &[&str], case: impl Fn(&Server) + Sync) {
    let site = letters();
    on_every_mechanism(|mechanism| case(&Server::on(&site, &with(mechanism, flags))));
}

fn with<'f>(mechanism: &Mechanism, flags: &[&'f str]) -> Vec<&'f str> {
    [&["--dispatch", mechanism.name][..], flags].concat()
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    on_each(&[], connections::requests_follow_each_other_on_one_connection);
}

#[test]
fn requests_in_one_packet_are_answered_in_order() {
    on_each(&[], connections::requests_in_one_packet_are_answered_in_order);
}

#[test]
fn requests_that_repeat_in_one_packet_get_their_own_answers() {
    on_each(&[], connections::requests_that_repeat_in_one_packet_get_their_own_answers);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    on_each(&[], connections::a_request_may_come_byte_by_byte);
}

#[test]
fn requests_may_be_cut_anywhere() {
    on_each(&[], connections::requests_may_be_cut_anywhere);
}

#[test]
fn a_half_closed_client_gets_its_answers() {
    on_each(&[], connections::a_half_closed_client_gets_its_answers);
}

#[test]
fn a_client_that_leaves_harms_nobody() {
    on_each(&[], connections::a_client_that_leaves_harms_nobody);
}

#[test]
fn hundreds_at_once_are_all_answered() {
    on_each(&[], connections::hundreds_at_once_are_all_answered);
}

#[test]
fn hundreds_at_once_are_all_answered_when_accepted_one_by_one() {
    on_each(&["--accept-batch", "1"], connections::hundreds_at_once_are_all_answered);
}

#[test]
fn hundreds_at_once_are_all_answered_by_three_workers() {
    on_each(&["--workers", "3"], connections::hundreds_at_once_are_all_answered);
}

#[test]
fn a_silent_connection_is_closed() {
    on_each(&["--idle-timeout", time_outs::SILENCE], time_outs::a_silent_connection_is_closed);
}

#[test]
fn a_head_that_does_not_end_is_a_408() {
    let flags = ["--header-timeout", time_outs::HEAD_LIMIT.0];
    on_each(&flags, time_outs::a_head_that_does_not_end_is_a_408);
}

#[test]
fn a_download_outlives_the_time_for_its_head() {
    const LEN: usize = 16 << 20;
    let site = letters();
    drop(site.sparse("long", LEN as u64));
    on_every_mechanism(|mechanism| {
        let flags = ["--idle-timeout", "0", "--header-timeout", time_outs::HEAD_LIMIT.0];
        let server = Server::on(&site, &with(mechanism, &flags));
        time_outs::a_download_outlives_the_time_for_its_head(&server, LEN);
    });
}

#[test]
fn a_server_that_was_suspended_goes_on() {
    on_each(&[], connections::a_server_that_was_suspended_goes_on);
}

#[test]
fn a_stop_finishes_what_is_under_way_and_closes_what_is_idle() {
    let site = stopping::site();
    // A connection that is deferred is the kernel's, and ends when its client speaks at last.
    let flags = ["--defer-accept", "off"];
    on_every_mechanism(|mechanism| {
        stopping::finishes_what_is_under_way(Server::on(&site, &with(mechanism, &flags)));
    });
}
