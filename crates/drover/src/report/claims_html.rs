//! The claims on the page: each with its criterion, verdicts and numbers beside the published ones.

use std::fmt::Write;

use super::html::{Section, escape, with_interval};
use super::number;
use crate::lab::claims::{self, Judgement, Verdict};
use crate::lab::experiment::Claim;

/// Writes the tally and a card for each claim.
pub(super) fn render(out: &mut String, section: &Section) {
    if section.experiment.claims.is_empty() {
        return;
    }
    let judged: Vec<(&Claim, Vec<Judgement>)> = section
        .experiment
        .claims
        .iter()
        .map(|claim| (claim, claims::judge(claim, section.results)))
        .filter(|(_, judgements)| !judgements.is_empty())
        .collect();
    out.push_str("<h2>Published claims, judged here</h2>\n");
    tally(out, judged.iter().flat_map(|(_, judgements)| judgements));
    for (claim, judgements) in &judged {
        card(out, section, claim, judgements);
    }
}

/// How many of the statements that the source makes hold; its successors are not counted.
fn tally<'a>(out: &mut String, judgements: impl Iterator<Item = &'a Judgement>) {
    let verdicts: Vec<Verdict> =
        judgements.filter(|judgement| judgement.in_source).map(|j| j.verdict).collect();
    out.push_str("<div class=\"tally\">");
    for verdict in [Verdict::Holds, Verdict::DoesNotHold, Verdict::TooNoisy] {
        let count = verdicts.iter().filter(|v| **v == verdict).count();
        let _ = write!(
            out,
            "<div class=\"{}\"><b>{count}</b>{}</div>",
            class(verdict),
            verdict.words()
        );
    }
    out.push_str(
        "</div>\n<p class=\"small dim\">Counted are statements that the source makes of a mechanism; rows \
         marked “extended” put the same statement to mechanisms of which it does not speak.",
    );
    if verdicts.contains(&Verdict::TooNoisy) {
        out.push_str(
            " Too noisy? Leave the machine alone meanwhile, or take more repeats: \
             <code>drover lab run --preset standard</code>.",
        );
    }
    out.push_str("</p>\n");
}

fn card(out: &mut String, section: &Section, claim: &Claim, judgements: &[Judgement]) {
    let _ = write!(
        out,
        "<section class=\"card\"><h3>({}) {}</h3>\n<p class=\"source small\">{} · {} [{}]</p>\n\
         <p class=\"small\">{}</p>\n",
        escape(&claim.id),
        escape(&claim.text),
        escape(&claim.source),
        claim.metric.title(),
        claim.metric.unit(),
        escape(&claims::criterion(&claim.judge, section.results))
    );
    if let Some(note) = &claim.note {
        let _ = writeln!(out, "<p class=\"small dim\">{}</p>", escape(note));
    }
    out.push_str("<div class=\"scroll\"><table>\n<tr><th>Mechanism</th><th>Verdict</th>");
    let places = judgements.first().map_or(&[][..], |judgement| &judgement.effects);
    for effect in places {
        let _ = write!(out, "<th class=\"n\">Effect at {}</th>", escape(&effect.place));
    }
    if !claim.published.is_empty() {
        out.push_str("<th>Published → here</th>");
    }
    out.push_str("</tr>\n");
    for judgement in judgements {
        row(out, section, claim, judgement);
    }
    out.push_str("</table></div></section>\n");
}

fn row(out: &mut String, section: &Section, claim: &Claim, judgement: &Judgement) {
    let _ = write!(
        out,
        "<tr{}><td>{}</td><td>{}</td>",
        if judgement.in_source { "" } else { " class=\"extended\"" },
        section.name(&judgement.mechanism),
        badge(judgement.verdict)
    );
    for effect in &judgement.effects {
        let cell =
            effect.estimate.as_ref().map_or("too few repeats or points".to_string(), with_interval);
        let _ = write!(out, "<td class=\"n\">{cell}</td>");
    }
    let compared: Vec<String> = judgement
        .compared
        .iter()
        .map(|comparison| {
            let measured =
                comparison.measured.as_ref().map_or("not measured".to_string(), with_interval);
            let level = comparison
                .connections
                .map_or(String::new(), |level| format!("{level} {}, ", section.results.counted()));
            format!(
                "{} → {measured} at {level}{}",
                number(comparison.published),
                comparison.ask.in_words()
            )
        })
        .collect();
    if !claim.published.is_empty() {
        let _ = write!(out, "<td>{}</td>", compared.join("<br>"));
    }
    out.push_str("</tr>\n");
}

fn badge(verdict: Verdict) -> String {
    let sign = match verdict {
        Verdict::Holds => "✓",
        Verdict::DoesNotHold => "✗",
        Verdict::TooNoisy => "?",
    };
    format!("<span class=\"verdict {}\">{sign} {}</span>", class(verdict), verdict.words())
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::DoesNotHold => "fails",
        Verdict::TooNoisy => "open",
    }
}
