//! Answers to anybody who may read: status, ports, drops, connections, a packet's way.

use crate::command_queue::{FlowPage, SoftDevice};
use crate::egress::{PortCount, SIZES};
use crate::inspect::Inspected;
use crate::report::ThreadReport;
use contract::report::{
    Amount, Answer, Connections, DropReport, EniReport, FlowReport, PointReport, PortReport, Query,
    SizeBucket, Status, TableUse, ThreadReport as ThreadTime,
};
use packet::{Count, Ledger};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

/// A question whose answer needs the threads.
pub enum Pending {
    /// Once every thread has reported.
    Reports(u64, Query),
    /// Once the packet was looked at.
    Trace(Receiver<Inspected>),
    /// Page by page, thread by thread.
    Flows {
        /// The thread that is asked now.
        thread: usize,
        /// Its next page.
        page: FlowPage,
        /// What came so far.
        rows: Vec<FlowReport>,
        /// How many are wanted.
        limit: usize,
    },
    /// At once.
    Ready(Option<Box<Answer>>),
}

impl SoftDevice {
    /// Takes a question.
    pub fn query(&self, query: Query) -> Pending {
        match query {
            Query::Status | Query::Ports | Query::Drops | Query::Points => {
                Pending::Reports(self.shared().request_reports(), query)
            }
            Query::Flows { limit } => {
                Pending::Flows { thread: 0, page: self.ask_flows(0, 0), rows: Vec::new(), limit }
            }
            Query::Trace { port, frame } => {
                let ports = &self.shared().config.ports;
                let index = ports.iter().position(|p| p.name == port);
                match index.and_then(|i| self.inspect(i as u16, frame, false)) {
                    Some(receiver) => Pending::Trace(receiver),
                    None => {
                        let names: Vec<_> = ports.iter().map(|p| p.name.as_str()).collect();
                        let text = format!("there is no port \"{port}\"; the ports are {}", names.join(", "));
                        Pending::Ready(Some(Box::new(Answer::Error(text))))
                    }
                }
            }
        }
    }

    /// The answer, if it is there.
    pub fn answer_to(&self, pending: &mut Pending) -> Option<Answer> {
        match pending {
            Pending::Ready(answer) => answer.take().map(|answer| *answer),
            Pending::Trace(receiver) => match receiver.try_recv() {
                Ok(mut inspected) => {
                    self.name_rules(&mut inspected);
                    Some(Answer::Trace(inspected.trace))
                }
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Answer::Error("the worker is gone".into())),
            },
            Pending::Flows { thread, page, rows, limit } => loop {
                let next = match page.try_recv() {
                    Ok((new, next)) => {
                        rows.extend(new);
                        next
                    }
                    Err(TryRecvError::Empty) => return None,
                    Err(TryRecvError::Disconnected) => None,
                };
                let from = match next {
                    Some(from) => from,
                    None => {
                        *thread += 1;
                        0
                    }
                };
                if rows.len() >= *limit || *thread == self.shared().boards.len() {
                    rows.truncate(*limit);
                    return Some(Answer::Flows(std::mem::take(rows)));
                }
                *page = self.ask_flows(*thread, from);
            },
            Pending::Reports(request, query) => self.shared().reported(*request).then(|| {
                let reports = self.shared().reports();
                match query {
                    Query::Ports => Answer::Ports(self.ports(&reports)),
                    Query::Drops => Answer::Drops(drops(&reports)),
                    Query::Points => Answer::Points(reports.iter().map(|r| point(r)).collect()),
                    _ => Answer::Status(Box::new(self.status(&reports))),
                }
            }),
        }
    }

    fn status(&self, reports: &[Arc<ThreadReport>]) -> Status {
        let shared = self.shared();
        let state = self.state();
        let mut all = Ledger::new();
        reports.iter().for_each(|r| all.merge(&r.ledger));
        let snapshot = shared.snapshot();
        let sum = |f: fn(&ThreadReport) -> u64| reports.iter().map(|r| f(r)).sum::<u64>();
        Status {
            program: contract::schema::vnet::PROGRAM.name.into(),
            profile: shared.config.profile.name.clone(),
            miss_policy: shared.config.miss_policy.word().into(),
            reset_policy: shared.config.reset_policy.word().into(),
            generation: state.generation,
            version: state.version,
            settled: state.settled,
            uptime_ns: self.uptime(),
            unaccounted: reports.iter().map(|r| r.ledger.unaccounted()).sum(),
            queued: queued(&all),
            rx: amount(all.entered.port),
            tx: amount(all.left.port),
            dropped: amount(all.drops().map(|(_, c)| c).sum()),
            consumed: amount(all.consumed().map(|(_, c)| c).sum()),
            created: amount(all.created().map(|(_, c)| c).sum()),
            flow_hits: sum(|r| r.flow_hits),
            punted: all.left.host_path.iter().map(|c| c.frames).sum(),
            connections: Connections {
                device: sum(|r| r.device),
                pending: sum(|r| r.pending),
                host: sum(|r| r.host),
            },
            tables: self
                .table_use()
                .into_iter()
                .map(|(name, used, limit)| TableUse { name: name.into(), used, limit })
                .collect(),
            enis: snapshot
                .host
                .enis
                .iter()
                .map(|e| EniReport {
                    eni: e.eni,
                    port: shared.config.ports[e.port as usize].name.clone(),
                    mac: e.mac,
                    armed: snapshot.device.enis.is_armed(e.eni),
                })
                .collect(),
            threads: reports.iter().map(|r| ThreadTime { name: r.name.clone(), cpu_ns: r.cpu_ns }).collect(),
            controller: false,
        }
    }

    fn ports(&self, reports: &[Arc<ThreadReport>]) -> Vec<PortReport> {
        let ports = &self.shared().config.ports;
        let rows = ports.iter().enumerate().map(|(index, port)| {
            let mut sum = PortCount::default();
            for count in reports.iter().filter_map(|r| r.ports.get(index)) {
                sum.rx += count.rx;
                sum.tx += count.tx;
                sum.drops += count.drops;
                sum.sizes.iter_mut().zip(count.sizes).for_each(|(a, b)| *a += b);
            }
            PortReport {
                name: port.name.clone(),
                kind: port.kind.clone(),
                interface: port.interface.clone(),
                mtu: port.mtu,
                rx_frames: sum.rx.frames,
                rx_packets: sum.rx.packets,
                rx_bytes: sum.rx.bytes,
                tx_frames: sum.tx.frames,
                tx_packets: sum.tx.packets,
                tx_bytes: sum.tx.bytes,
                drops: sum.drops,
                sizes: SIZES
                    .iter()
                    .zip(sum.sizes)
                    .map(|(&up_to, frames)| SizeBucket { up_to, frames })
                    .collect(),
            }
        });
        rows.collect()
    }
}

/// Frames between threads: what was sent into rings, less what was taken out. The reports are not of one moment, so a frame
/// taken out after the first report may not have been sent in it.
fn queued(all: &Ledger) -> u64 {
    let punted: u64 = all.left.host_path.iter().map(|c| c.frames).sum();
    let sent = punted + all.left.returned.frames + all.left.worker.frames;
    let taken = all.entered.punted.frames + all.entered.host_path.frames + all.entered.worker.frames;
    sent.saturating_sub(taken) + all.held
}

fn drops(reports: &[Arc<ThreadReport>]) -> Vec<DropReport> {
    let rows = reports.iter().flat_map(|r| {
        r.ledger.drops().map(|(reason, count)| DropReport {
            point: r.name.clone(),
            reason: reason.code().into(),
            frames: count.frames,
            packets: count.packets,
            bytes: count.bytes,
        })
    });
    rows.collect()
}

fn point(report: &ThreadReport) -> PointReport {
    let (e, l) = (&report.ledger.entered, &report.ledger.left);
    let fixed = |rows: &[(&str, Count)]| -> Vec<(String, u64)> {
        rows.iter().filter(|(_, c)| !c.is_zero()).map(|(name, c)| (name.to_string(), c.frames)).collect()
    };
    let mut entered =
        fixed(&[("port", e.port), ("host_path", e.host_path), ("worker", e.worker), ("punted", e.punted)]);
    entered.extend(report.ledger.created().map(|(r, c)| (format!("created {r}"), c.frames)));
    let mut left = fixed(&[("port", l.port), ("returned", l.returned), ("worker", l.worker)]);
    left.extend(report.ledger.punts().map(|(r, c)| (format!("punted {r}"), c.frames)));
    left.extend(report.ledger.consumed().map(|(r, c)| (format!("consumed {r}"), c.frames)));
    left.extend(report.ledger.drops().map(|(r, c)| (format!("dropped {r}"), c.frames)));
    PointReport {
        point: report.name.clone(),
        entered,
        left,
        held: report.ledger.held,
        unaccounted: report.ledger.unaccounted(),
    }
}

fn amount(count: Count) -> Amount {
    Amount { frames: count.frames, packets: count.packets, bytes: count.bytes }
}
