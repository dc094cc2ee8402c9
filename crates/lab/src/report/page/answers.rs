//! The section "What to use here": the answers to users' questions.

use maud::{Markup, html};

use super::{heading, section_id};
use crate::report::model::Report;
use crate::report::model::answer::{
    AnswerKind, Candidate, CandidateStanding, Finding, QuestionAnswer,
};
use crate::report::model::words;

/// The section; empty if there are no answers, as for an experiment of a user.
pub(super) fn render(report: &Report) -> Markup {
    if !report.has_answers() {
        return html! {};
    }
    html! {
        section.answers {
            (heading(2, "answers", "What to use here"))
            p.small {
                "From this session's samples alone. Candidates are ruled out where they are worse than the "
                "best of the others, and equal where both are shown to be within 5 % of each other (error rate "
                "5 % for an answer); models are no candidates. " b { "Clear" } ": one is the best. " b { "A tie" }
                ": several are equal and better than the rest. " b { "Narrowed" } ": some are ruled out, several "
                "remain. " b { "Open" } ": this machine could not tell."
                @if is_early(report) {
                    " " b { "Early" } ": one is ahead in fewer rounds than a verdict needs."
                }
            }
            @for answer in &report.answers { (question(answer)) }
        }
    }
}

fn is_early(report: &Report) -> bool {
    let mut findings = report.answers.iter().flat_map(|answer| &answer.findings);
    findings.any(|finding| finding.outcome == AnswerKind::Early)
}

fn question(answer: &QuestionAnswer) -> Markup {
    let anchor = format!("answer-{}", answer.id);
    let (measured, others): (Vec<&Finding>, Vec<&Finding>) =
        answer.findings.iter().partition(|it| it.outcome != AnswerKind::NotMeasured);
    html! {
        section.question {
            (heading(3, &anchor, &answer.question))
            @if let Some(verdict) = &answer.verdict { p { (verdict) } }
            @if let Some(note) = &answer.note { p.small { (note) } }
            @for one in &measured { (finding(one)) }
            @if measured.is_empty() {
                p { "This session does not answer it." }
            }
            @for one in &others {
                p.small.dim {
                    (one.where_words()) ": " (one.sentence()) " "
                    a href={ "#" (section_id(&one.experiment)) } { (one.experiment) }
                }
            }
        }
    }
}

fn finding(finding: &Finding) -> Markup {
    let (class, word) = match finding.outcome {
        AnswerKind::Clear => ("for", "clear"),
        AnswerKind::Tie => ("for", "a tie"),
        AnswerKind::Narrowed => ("open", "narrowed"),
        AnswerKind::Early => ("open", "early"),
        AnswerKind::OnlyOne => ("open", "only one"),
        AnswerKind::Open | AnswerKind::NotMeasured => ("open", "open"),
    };
    html! {
        details.finding {
            summary {
                span class={ "badge " (class) } { (word) } " "
                b { (finding.where_words()) ": " }
                (finding.sentence()) " "
                a href={ "#" (section_id(&finding.experiment)) } { (finding.experiment) }
            }
            div.scroll {
                table {
                    thead {
                        tr {
                            th { "Candidate" }
                            th.n { (finding.metric) @if !finding.unit.is_empty() { " [" (finding.unit) "]" } }
                            th.n { "÷ reference (95 %)" }
                            th { "" }
                        }
                    }
                    tbody { @for one in &finding.candidates { (candidate(one)) } }
                }
            }
        }
    }
}

fn candidate(one: &Candidate) -> Markup {
    let standing = match one.standing {
        CandidateStanding::Reference => "reference",
        CandidateStanding::Equal => "equal within 5 %",
        CandidateStanding::Open => "cannot be told apart",
        CandidateStanding::Worse => "worse",
        CandidateStanding::Out => "not compared",
    };
    html! {
        tr {
            td { code { (one.name) } }
            td.n {
                @if let Some(it) = one.estimate {
                    (words::sign(it.bound)) (words::number(it.value))
                    @if let (Some(low), Some(high)) = (it.low, it.high) {
                        " " span.dim { "(" (words::range(low, high)) ")" }
                    }
                } @else { "–" }
            }
            td.n {
                @if let Some(it) = one.ratio {
                    (words::number(it.value)) " " span.dim { "(" (words::range(it.low, it.high)) ")" }
                } @else { "–" }
            }
            td {
                (standing)
                @if one.is_limited { "; a bound: the load was at its limit or late, or requests failed" }
                @if let Some(reason) = &one.reason { ": " (reason) }
            }
        }
    }
}
