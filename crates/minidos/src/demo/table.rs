//! The human-readable report.

use core::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::report::{Report, Sizes};
use crate::messages::Kind;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, dims) = self.shape;
        writeln!(f, "k-means on {}: {rows} points of {dims} numbers", self.title)?;
        match self.nodes {
            1 => writeln!(f, "1 node process, which sends no messages; {} iterations", self.iterations)?,
            nodes => {
                writeln!(
                    f,
                    "{nodes} node processes over {}, {} iterations",
                    self.transport, self.iterations
                )?;
            }
        }
        writeln!(f, "\n{}\n", types(self))?;
        write_sizes(f, self)?;
        write_lengths(f, self)?;
        write_equations(f, self)?;
        write_pressure(f, self)?;
        write_verdict(f, self)
    }
}

/// Returns the table of message types, one row each; types that were not sent are listed with 0.
fn types(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["message", "count", "bytes", "bytes each", "in DEX", "p50", "p99"]);
    for kind in Kind::ALL {
        let traffic = report.totals.traffic.of(kind);
        let each = traffic.bytes.checked_div(traffic.sent);
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), grouped);
        let time = |share| traffic.quantile(share).map_or_else(|| "-".to_owned(), duration);
        table.add_row([
            kind.name().to_owned(),
            grouped(traffic.sent),
            grouped(traffic.bytes),
            number(each),
            number(kind.dex_bytes().map(u64::from)),
            time(0.5),
            time(0.99),
        ]);
    }
    let (messages, bytes) = (grouped(report.messages()), grouped(report.bytes()));
    table.add_row(["all", &messages, &bytes, "", "", "", ""]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let notes = "p50, p99: round-trip time for a request and its reply, time of the send for other messages.\n\
                 bytes: payload without the 24-byte header. in DEX: size in that system, with its 10-byte header, without machine registers.";
    format!("{}\n{notes}", table.trim_fmt())
}

fn write_sizes(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let sizes = report.sizes();
    let line = |f: &mut fmt::Formatter<'_>, what, measured: f64, published: f64| {
        let (measured, published) = (measured * 100.0, published * 100.0);
        let distance = measured - published;
        writeln!(f, "  {what:<28} {measured:>6.1} %   {published:>6.1} %   {distance:>+6.1}")
    };
    writeln!(f, "Sizes, compared with Kim (2021)   here     Fig. 2     difference")?;
    line(f, "messages under 100 B", sizes.messages_under_100, Sizes::PUBLISHED.messages_under_100)?;
    line(f, "bytes in large messages", sizes.bytes_over_1k, Sizes::PUBLISHED.bytes_over_1k)?;
    writeln!(f)
}

/// Writes the two cumulative distributions of Fig. 2; nothing if there are no messages.
fn write_lengths(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let steps = report.lengths().steps();
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "Payloads up to this length, as in Fig. 2\n     bytes   messages      share   bytes in them"
    )?;
    for step in steps {
        let (messages, bytes) = (step.messages_up_to * 100.0, step.bytes_up_to * 100.0);
        let (length, count) = (grouped(step.length), grouped(step.messages));
        writeln!(f, "  {length:>8} {count:>10}   {messages:>6.1} %        {bytes:>6.1} %")?;
    }
    writeln!(f)
}

fn write_equations(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(f, "Every message has a cause")?;
    for equation in &report.equations {
        let sign = if equation.holds() { "=" } else { "!=" };
        let (received, caused) = (grouped(equation.received), grouped(equation.caused));
        writeln!(f, "  {received:>8} {} {sign} {caused} {}", equation.messages, equation.causes)?;
    }
    writeln!(f)
}

fn write_pressure(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(f, "Back-pressure and overflow")?;
    writeln!(f, "  {:>8} posts that waited for room", grouped(report.waits_for_room))?;
    for (name, count) in &report.counters {
        if !VOLUMES.contains(&&**name) {
            writeln!(f, "  {:>8} {}", grouped(*count), name.replace('_', " "))?;
        }
    }
    writeln!(f)
}

fn write_verdict(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let faults = report.faults;
    writeln!(
        f,
        "{} lost, {} duplicated, {} out of order, {} corrupt; accounts {}",
        report.lost,
        faults.duplicated,
        faults.out_of_order,
        faults.corrupt,
        if report.reconciled() { "reconciled" } else { "NOT RECONCILED" }
    )?;
    let equal = if report.result_equal { "equal, bit for bit" } else { "NOT EQUAL" };
    write!(f, "Result compared with one process: {equal}")?;
    if let Some(purity) = report.purity {
        write!(
            f,
            "; {:.1} % of the points are in a cluster where most points have their label",
            purity * 100.0
        )?;
    }
    let (took, single) = (report.took.as_secs_f64(), report.single_took.as_secs_f64());
    let nodes = if report.nodes == 1 { "1 node".into() } else { format!("{} nodes", report.nodes) };
    write!(f, "\n{took:.2} s on {nodes}, {single:.3} s in one process that sends no messages")
}

/// Formats `number` with a comma after every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time in the unit that leaves one to three digits before the decimal point.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown, 15 are kept")]
fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
    }
}

/// Counters of volume, not of pressure; the table shows the volume by type.
const VOLUMES: [&str; 4] = ["messages_sent", "messages_received", "bytes_sent", "bytes_received"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn times_have_a_fitting_unit() {
        let texts = [999, 1_500, 2_000_000, 3_100_000_000].map(duration);
        assert_eq!(texts, ["999 ns", "1.5 us", "2.0 ms", "3.1 s"]);
    }
}
