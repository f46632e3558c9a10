//! Claims and mechanisms of one paper: Kim: a communication layer for distributed operating systems.

use minidos::demo::Sizes;

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "comm-layer",
    letter: 'K',
    title: "Kim: a communication layer for distributed operating systems (2021)",
    setting: "The paper has a layer in the kernel of four nodes with InfiniBand cards of 56 Gbit/s; here nodes are processes of one machine \
              over shared memory and loopback TCP, and verbs run over emulated RDMA in the lab.",
    rows: ROWS,
    findings: &[],
};

const ROWS: &[Row] = &[
    Row {
        id: "K1",
        place: "§1",
        text: "No layer exists that an OS subsystem could adopt, so each project builds its own.",
        state: State::Done,
        code: &["crates/pronto", "README.md"],
        tests: &["crates/pronto/tests/calls.rs::shm_adaptive", "crates/pronto/tests/calls.rs::tcp_adaptive"],
        remark: "The layer is a library that a program embeds.",
        ..Row::DEFAULT
    },
    Row {
        id: "K2",
        place: "§1",
        text: "The TCP/IP stack is too deep for control messages.",
        state: State::Done,
        code: &["crates/fabric-shm", "crates/fabric-tcp"],
        runs: &["latency"],
        remark: "The same call over loopback TCP and over shared memory, with both sides polling and with both sleeping. No network is \
                 involved, and shared memory stands for the native transport.",
        statements: &[Statement {
            id: "K2",
            text: "32 B: a call over TCP as a multiple of the same call over shared memory",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K3",
        place: "§1",
        text: "IP over InfiniBand takes tens of microseconds where native InfiniBand takes a few.",
        state: State::Partly,
        code: &["crates/fabric-tcp", "crates/fabric-verbs", "bench/src/rdma/latency.rs"],
        runs: &["latency"],
        remark: "The lab measures the comparison, but its RDMA device is emulated on top of IP. A verdict needs two RDMA ports.",
        statements: &[Statement {
            id: "K3",
            text: "The same call by IP over the same link as a multiple of that by verbs",
            published: Published::Text("tens of us against a few"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K4",
        place: "§1",
        text: "RDMA is used where it does not fit the work of an OS.",
        state: State::Absent,
        remark: "One-sided operations exist (K33), but nothing moves a page by them and by messages to compare the two.",
        ..Row::DEFAULT
    },
    Row {
        id: "K5",
        place: "§2",
        text: "Messages go through queue pairs; work is posted and its completion is reported in a queue.",
        state: State::Done,
        code: &["comm-core/src/fabric/mod.rs", "crates/conformance"],
        tests: &[
            "crates/fabric-shm/tests/conformance.rs::conformance",
            "crates/fabric-tcp/tests/conformance.rs::control_conforms",
            "crates/fabric-verbs/tests/lab/conformance.rs::conforms",
        ],
        remark: "Every transport passes the same suite.",
        ..Row::DEFAULT
    },
    Row {
        id: "K6",
        place: "§2",
        text: "A list of scattered pieces names the payload.",
        state: State::Done,
        code: &[
            "comm-core/src/fabric/work.rs",
            "crates/fabric-verbs/src/sending.rs",
            "comm-core/src/session/rendezvous/pieces.rs",
        ],
        tests: &[
            "crates/fabric-tcp/tests/conformance.rs::bulk_conforms",
            "crates/pronto/tests/rendezvous.rs::pieces_arrive_as_one_message",
        ],
        remark: "A call gathers its header and one piece of payload, which its codec wrote. A long message has up to 16 pieces, of regions or \
                 of the program's own memory, which the receiver reads one after the other.",
        ..Row::DEFAULT
    },
    Row {
        id: "K7",
        place: "§2",
        text: "The receiver posts buffers beforehand; the card fills one and reports it.",
        state: State::Done,
        code: &["crates/fabric-verbs/src/receives.rs", "crates/fabric-shm/src/receive.rs"],
        tests: &[
            "crates/fabric-verbs/tests/lab/receivers.rs::a_message_without_a_receive_fails_its_sender",
            "crates/conformance/src/chapters/leases.rs::all_receives_held",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K8",
        place: "§2",
        text: "Buffers are pinned and mapped, for RDMA also registered, which gives a remote key.",
        state: State::Done,
        code: &["crates/fabric-verbs/src/regions.rs", "crates/fabric-verbs/src/sys/memory.rs"],
        tests: &[
            "crates/fabric-verbs/tests/lab/registration.rs::no_message_up_to_64_kib_registers_anything",
            "crates/fabric-verbs/tests/lab/pin_limit.rs::with_8_mib_a_link_works_until_they_are_used_up",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K9",
        place: "§3.1",
        text: "Applications register large buffers once; the data of an OS may lie anywhere.",
        state: State::Done,
        code: &["comm-core/src/fabric/region/own.rs", "crates/fabric-shm/src/by_address.rs"],
        tests: &[
            "crates/pronto/tests/own_memory.rs::messages_leave_from_the_heap_a_constant_and_a_file",
            "crates/pronto/tests/own_memory.rs::borrowed_bytes_are_sent_and_returned",
        ],
        remark: "Messages into posted buffers leave from the program's heap, stack, constants and mapped files without a copy before.",
        ..Row::DEFAULT
    },
    Row {
        id: "K10",
        place: "§3.1",
        text: "Some drivers take only memory from the kernel's allocators, so a message cannot lie on the stack.",
        state: State::NotApplicable,
        remark: "Drivers in the kernel; this library runs in user space.",
        ..Row::DEFAULT
    },
    Row {
        id: "K11",
        place: "Fig. 1",
        text: "Setting the buffer up is up to 98 % of a transfer by RDMA read.",
        state: State::Partly,
        code: &["bench/src/rdma/fig1.rs", "crates/fabric-verbs/src/sys/memory.rs"],
        runs: &["comm-fig1"],
        remark: "A model: the measured instructions of registering at an assumed rate, and an assumed wire. The paper's column for mapping \
                 the buffer for the card is missing.",
        statements: &[Statement {
            id: "K11",
            text: "Share of setting the buffer up in a transfer, up to",
            published: Published::Number(0.98),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K12",
        place: "§3.1",
        text: "Setting a buffer up matters more than the transfer, whatever its size.",
        state: State::Done,
        code: &["bench/src/rdma/fig1.rs"],
        runs: &["comm-fig1"],
        remark: "By the model of K11.",
        statements: &[Statement {
            id: "K12",
            text: "Setting the buffer up takes more than half of the transfer at every size",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K13",
        place: "§3.1",
        text: "No region covers all memory: every node could access it, and the OS could not manage it.",
        state: State::Done,
        code: &["crates/fabric-verbs/src/granting.rs", "crates/fabric-verbs/src/windows.rs"],
        tests: &[
            "crates/fabric-verbs/tests/lab/grants.rs::no_registration_has_a_remote_right",
            "crates/fabric-verbs/tests/lab/grants.rs::only_granted_ranges_are_open",
        ],
        remark: "Compared with the kernel's own list of registrations. Over shared memory a grant relies on cooperation.",
        ..Row::DEFAULT
    },
    Row {
        id: "K14",
        place: "§3.1",
        text: "An OS sends small control messages, which need low latency, and large data, which needs bandwidth.",
        state: State::Done,
        code: &[
            "comm-core/src/session/link.rs",
            "comm-core/src/dispatch/ready.rs",
            "crates/sched-policy/src/policy/lanes.rs",
            "crates/node/src/serving/pool.rs",
        ],
        runs: &["head-of-line"],
        tests: &[
            "crates/pronto/tests/faults/lanes.rs::a_control_request_passes_queued_bulk_requests",
            "crates/pronto/tests/faults/lanes.rs::a_bulk_request_starts_among_queued_control_requests",
            "crates/node/src/serving/pool.rs::control_is_taken_before_bulk_also_from_a_lane",
        ],
        remark: "A queue pair for each class, and workers that take control before bulk. The experiment compares small calls next to \
                 64 MiB messages with its own bars, H1 and H2; not over verbs.",
        ..Row::DEFAULT
    },
    Row {
        id: "K15",
        place: "Fig. 2",
        text: "The sizes of messages of k-means have two modes, by number and by bytes.",
        state: State::Done,
        code: &["crates/minidos/src/demo", "crates/minidos/src/account/lengths.rs"],
        runs: &["comm-fig2"],
        tests: &["daemon/tests/demo.rs::the_json_has_the_documented_keys_and_valid_values"],
        remark: "Another k-means on another distributed OS, with the message types of the paper's. The rows are the two curves.",
        ..Row::DEFAULT
    },
    Row {
        id: "K16",
        place: "§3.1",
        text: "Most messages are small, and most bytes travel in large messages.",
        state: State::Done,
        code: &["crates/minidos/src/demo", "crates/minidos/src/account/lengths.rs"],
        runs: &["comm-fig2"],
        tests: &["bench/src/mix/deck.rs::a_deck_has_the_sizes_of_the_paper"],
        remark: "Counted in a real run, as K15. The mix is built with these shares, which a test checks.",
        statements: &[
            Statement {
                id: "K16a",
                text: "Share of messages under 100 B",
                published: Published::Number(Sizes::PUBLISHED.messages_under_100),
            },
            Statement {
                id: "K16b",
                text: "Share of bytes in messages over 1 KiB",
                published: Published::Number(Sizes::PUBLISHED.bytes_over_1k),
            },
        ],
    },
    Row {
        id: "K17",
        place: "§3.1",
        text: "Callers are concurrent and asynchronous, from system calls and interrupts on many CPUs.",
        state: State::Done,
        code: &["rpc/src/peer.rs", "comm-core/src/session/shared.rs", "docs/embedding.md"],
        tests: &[
            "crates/pronto/tests/calls.rs::many_callers_share_a_peer",
            "crates/pronto/tests/faults/forked.rs::a_forked_child_is_refused_and_its_parent_is_not",
            "crates/pronto/tests/compile.rs::misuse_does_not_compile",
        ],
        remark: "Any thread may call, and a wrong call from a handler or a forked child is refused; a table has all contexts. Outside the \
                 kernel, signal handlers take the place of interrupts: they may call nothing.",
        ..Row::DEFAULT
    },
    Row {
        id: "K18",
        place: "§3.2",
        text: "Each connection has send memory of 32 MB by default, configurable and registered at the start.",
        state: State::Done,
        code: &["comm-core/src/buf", "comm-core/src/session/limits.rs", "crates/node/src/config/mod.rs"],
        tests: &[
            "comm-core/src/buf/tests.rs::chunks_are_made_ready_ahead_of_need",
            "comm-core/src/buf/tests.rs::any_memory_makes_a_ring",
        ],
        remark: "32 MiB for bulk and 8 MiB for control, virtual. Over verbs 512 KiB of each are registered at the start, because an \
                 ordinary user may pin little, and the rest ahead of need.",
        ..Row::DEFAULT
    },
    Row {
        id: "K19",
        place: "§3.2",
        text: "At its start, a node connects to every other node of its configuration.",
        state: State::Done,
        code: &["crates/node/src/links/dial.rs"],
        tests: &[
            "crates/pronto/tests/faults/order.rs::any_order_leads_to_one_session",
            "crates/pronto/tests/faults/order.rs::nodes_that_dial_each_other_simultaneously_connect",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K20",
        place: "§3.2",
        text: "A sender allocates a buffer in send memory and composes its message there.",
        state: State::Done,
        code: &["comm-core/src/buf/loan.rs", "rpc/src/encode.rs"],
        tests: &[
            "comm-core/src/buf/tests.rs::the_posted_bytes_are_those_composed",
            "comm-core/tests/typestate.rs::misuse_of_a_send_buffer_does_not_compile",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K21",
        place: "§3.2",
        text: "Send work requests come from a pool.",
        state: State::Done,
        code: &["comm-core/src/session/work.rs"],
        tests: &["comm-core/src/session/work.rs::a_slot_whose_work_was_not_posted_is_free_again"],
        ..Row::DEFAULT
    },
    Row {
        id: "K22",
        place: "§3.2",
        text: "The sender chooses to wait for the completion or to go on.",
        state: State::Done,
        code: &["rpc/src/peer.rs", "comm-core/src/session/api/synchronous.rs"],
        tests: &["bench/src/traffic/sends.rs::both_designs_complete_every_send_on_both_transports"],
        ..Row::DEFAULT
    },
    Row {
        id: "K23",
        place: "§3.2",
        text: "Buffer and work request are reclaimed automatically after the message was processed.",
        state: State::Done,
        code: &["comm-core/src/session/engine/completions.rs", "comm-core/src/session/work.rs"],
        tests: &[
            "comm-core/src/session/work.rs::work_completes_once_and_frees_its_slot",
            "bench/tests/session/streamed.rs::a_stream_of_long_payloads_reuses_its_memory",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K24",
        place: "§3.2",
        text: "Several senders allocate buffers of one connection simultaneously.",
        state: State::Done,
        code: &["comm-core/src/buf/chunk.rs", "comm-core/src/buf/thread_arena.rs"],
        tests: &[
            "comm-core/src/buf/tests.rs::threads_never_share_bytes",
            "comm-core/src/buf/loom_tests.rs::loom_two_threads_roll_over_into_the_next_chunk",
        ],
        remark: "Short buffers come from an arena of the thread, long ones from chunks that threads share.",
        ..Row::DEFAULT
    },
    Row {
        id: "K25",
        place: "§3.2",
        text: "The memory consists of chunks of 4 MB that are physically contiguous.",
        state: State::Partly,
        code: &["comm-core/src/buf/config.rs"],
        runs: &["comm-fig1"],
        tests: &["comm-core/src/buf/tests.rs::no_buffer_crosses_a_chunk"],
        remark: "Chunks of 4 MiB in ordinary pages: no huge pages, so they are not contiguous. comm-fig1 has rows of registering with \
                 huge pages and without.",
        ..Row::DEFAULT
    },
    Row {
        id: "K26",
        place: "§3.2",
        text: "Chunks form a circular buffer; a buffer at the tail moves the tail when it is reclaimed.",
        state: State::Done,
        code: &["comm-core/src/buf/config.rs", "comm-core/src/buf/ring.rs"],
        runs: &["bandwidth", "straggler"],
        tests: &[
            "comm-core/src/buf/tests.rs::circular_placement_stops_at_a_straggler",
            "comm-core/src/buf/model_tests.rs::circular_buffers_never_overlap_and_all_come_back",
        ],
        remark: "The default takes the lowest chunk with room instead. A node selects the circular order by its limits, and bandwidth has \
                 rows of both.",
        ..Row::DEFAULT
    },
    Row {
        id: "K27",
        place: "§3.2",
        text: "While a buffer is held for long, temporary buffers take its place.",
        state: State::Done,
        code: &["comm-core/src/buf/overflow.rs", "bench/src/experiments/straggler.rs"],
        runs: &["straggler"],
        tests: &["comm-core/src/buf/tests.rs::overflow_slots_come_last_and_are_counted"],
        remark: "The library has a bounded number of overflow buffers and then refuses. The paper's unbounded ones exist only in the \
                 benchmark.",
        statements: &[
            Statement {
                id: "K27",
                text: "Behind a held buffer the circular buffer fills, and sends take temporary buffers",
                published: Published::Text("some"),
            },
            Statement {
                id: "K27-ours",
                text: "With chunks, a held buffer blocks one chunk: no send needs a temporary buffer or is refused",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "K28",
        place: "§3.2",
        text: "A connection has one completion queue for sends, so completions must be assigned to their senders.",
        state: State::Done,
        code: &["comm-core/src/session/work.rs", "comm-core/src/session/engine/completions.rs"],
        tests: &["comm-core/src/session/work.rs::a_slot_is_not_freed_twice"],
        remark: "A completion names its slot and generation instead of the address of a flag.",
        ..Row::DEFAULT
    },
    Row {
        id: "K29",
        place: "§3.2",
        text: "A completion thread that blocked senders wait for costs up to hundreds of microseconds.",
        state: State::Done,
        code: &["bench/src/traffic/sends.rs"],
        runs: &["completion"],
        tests: &["bench/src/traffic/sends.rs::both_designs_complete_every_send_on_both_transports"],
        remark: "The design exists only in the benchmark. Its sender raises the event that hardware would raise; the cost is measured and \
                 left out.",
        statements: &[Statement {
            id: "K29",
            text: "A send takes longer with a completion thread than if its sender polls",
            published: Published::Text("up to hundreds of us more"),
        }],
    },
    Row {
        id: "K30",
        place: "§3.2",
        text: "Senders poll the completion queue themselves, and pass completions of others on.",
        state: State::Done,
        code: &["comm-core/src/wait/poller_role.rs", "comm-core/src/session/api/wait.rs"],
        tests: &[
            "comm-core/src/wait/loom_tests/poller_role.rs::loom_three_waiters_are_all_served",
            "comm-core/src/wait/loom_tests/poller_role.rs::loom_a_waiter_that_gives_up_hands_over",
        ],
        remark: "One waiter polls for all and hands the role over; in the paper all of them poll.",
        ..Row::DEFAULT
    },
    Row {
        id: "K31",
        place: "§3.2",
        text: "One sending thread per connection is the common case, and gains most.",
        state: State::Done,
        code: &["bench/src/traffic/sends.rs"],
        runs: &["completion"],
        remark: "Rows of 1 to 8 threads. More than one thread is judged only if receiver, completion thread and senders have a CPU each.",
        statements: &[Statement {
            id: "K31",
            text: "One sending thread gains most from polling its own completions",
            published: Published::Text("most"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K32",
        place: "§3.2",
        text: "For small messages, one copy costs much less than setting a buffer up.",
        state: State::Done,
        code: &["bench/src/experiments/threshold.rs", "bench/src/rdma/fig1.rs"],
        runs: &["threshold", "comm-fig1"],
        remark: "Over shared memory, setting up is announcing a region to the peer, which maps it, and unmapping it again; over verbs, \
                 registering and deregistering. TCP sets nothing up.",
        statements: &[Statement {
            id: "K32",
            text: "Setting a buffer of up to 4 KiB up for one message as a multiple of copying it, at least",
            published: Published::Text("much more"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K33",
        place: "§3.2",
        text: "For large messages, the sender may name its own memory: no copy, or RDMA.",
        state: State::Done,
        code: &["rpc/src/peer.rs", "rpc/src/one_sided.rs"],
        tests: &[
            "crates/pronto/tests/calls.rs::messages_travel_from_a_region",
            "crates/pronto/tests/one_sided.rs::shm",
            "crates/conformance/src/chapters/gather.rs",
        ],
        remark: "From memory that the library has allocated (K9). Over TCP a reference is a copy.",
        ..Row::DEFAULT
    },
    Row {
        id: "K34",
        place: "§3.2",
        text: "Receive work requests and their buffers are prepared at the start.",
        state: State::Done,
        code: &["crates/fabric-verbs/src/receives.rs", "crates/fabric-shm/src/layout.rs"],
        tests: &["crates/fabric-verbs/tests/lab/receivers.rs::ten_to_one_finds_a_receive_for_every_message"],
        ..Row::DEFAULT
    },
    Row {
        id: "K35",
        place: "§3.2",
        text: "A component registers a message type with its handler, and messages find it by their type.",
        state: State::Done,
        code: &["rpc/src/handler.rs", "comm-core/src/session/peer_types.rs"],
        tests: &[
            "comm-core/src/session/peer_types.rs::types_are_found_by_service_and_name",
            "crates/pronto/tests/calls.rs::unknown_types_are_refused_here",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K36",
        place: "§3.2",
        text: "A pool of worker threads runs the handlers.",
        state: State::Done,
        code: &["crates/node/src/serving/pool.rs"],
        tests: &["crates/pronto/tests/calls.rs::workers_run_concurrently"],
        remark: "A handler that asks for it runs inline on the serving thread instead.",
        ..Row::DEFAULT
    },
    Row {
        id: "K37",
        place: "§3.2",
        text: "When the handler returns, the message and its receive work request are used again.",
        state: State::Done,
        code: &["crates/fabric-shm/src/lease.rs", "crates/fabric-verbs/src/lease.rs"],
        tests: &[
            "crates/conformance/src/chapters/leases.rs::some_are_held_while_others_come_and_go",
            "crates/conformance/src/chapters/leases.rs::dropped_in_any_order",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K38",
        place: "§3.2",
        text: "Messages are processed in any order, except types that are registered as ordered.",
        state: State::Done,
        code: &["comm-core/src/dispatch/lanes.rs", "rpc/src/handler.rs"],
        runs: &["mix"],
        tests: &[
            "crates/pronto/tests/faults/lanes.rs::ordered_keeps_every_senders_order",
            "crates/pronto/tests/faults/lanes.rs::unordered_calls_overtake",
        ],
        remark: "Ordered messages have a lane that any worker serves, not a designated worker; a type may also be ordered by a key. mix \
                 checks the order of every message.",
        ..Row::DEFAULT
    },
    Row {
        id: "K39",
        place: "§4",
        text: "The test bed: four nodes with Xeon Gold 5215, 128 GB, ConnectX-5 and a switch of 56 Gbit/s.",
        state: State::NotApplicable,
        remark: "Hardware of the paper. Every result names its own machine.",
        ..Row::DEFAULT
    },
    Row {
        id: "K40",
        place: "Fig. 3",
        text: "Allocating and releasing a buffer is 3.5 to 6.6 % of a send.",
        state: State::Done,
        code: &["comm-core/src/buf", "bench/src/experiments/comm_fig3.rs"],
        runs: &["comm-fig3"],
        remark: "Buffers are timed in batches, outside of the send, because one takes less time than a clock reading.",
        statements: &[
            Statement {
                id: "K40",
                text: "Share of allocating and releasing the buffer in a send, at most",
                published: Published::Number(0.066),
            },
            Statement {
                id: "K40-bar",
                text: "That share where a send is long enough to judge it, at most",
                published: Published::Nothing,
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K41",
        place: "Fig. 4",
        text: "Operations grow with threads at every size.",
        state: State::Partly,
        code: &["bench/src/experiments/comm_fig4.rs", "bench/src/traffic/sends.rs"],
        runs: &["comm-fig4"],
        remark: "1 to 8 threads over shared memory and TCP, judged up to the number of CPUs; not over verbs.",
        statements: &[Statement {
            id: "K41",
            text: "Sends per second grow with threads at every size",
            published: Published::Text("at every size"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K42",
        place: "§4",
        text: "A distributed OS with 18 message types uses the layer.",
        state: State::Done,
        code: &["crates/minidos/src/messages/kind.rs", "crates/minidos/src/os"],
        runs: &["mix", "comm-fig2"],
        tests: &[
            "bench/src/mix/deck.rs::a_deck_has_every_message_type",
            "daemon/tests/demo.rs::the_json_has_the_documented_keys_and_valid_values",
        ],
        remark: "20 types of the published code of that OS, and signals, on a small OS in user space.",
        ..Row::DEFAULT
    },
    Row {
        id: "K43",
        place: "§4",
        text: "The layer runs in the kernel.",
        state: State::Partly,
        code: &["comm-core", "crates/wire", "crates/xtask/src/stages/no_std.rs"],
        tests: &[
            "crates/xtask/src/stages/no_std.rs::the_program_depends_on_marked_crates_without_default_features",
        ],
        remark: "Core, wire format, rings and policies link and run without the standard and the C library. No part of the layer runs in a \
                 kernel.",
        ..Row::DEFAULT
    },
    Row {
        id: "K44",
        place: "§5",
        text: "Future work: payloads replicated by multicast.",
        state: State::Absent,
        remark: "A call to several nodes is one call for each of them.",
        ..Row::DEFAULT
    },
    Row {
        id: "K45",
        place: "§5",
        text: "Future work: checkpoints at commits.",
        state: State::Absent,
        remark: "Nothing of it exists.",
        ..Row::DEFAULT
    },
    Row {
        id: "K46",
        place: "§4",
        text: "The paper publishes shares and ratios, but no absolute latency.",
        state: State::Done,
        code: &["bench/src/experiments/latency.rs", "bench/src/floor"],
        runs: &["latency"],
        remark: "Here every latency has the bare floor of the same run next to it.",
        ..Row::DEFAULT
    },
];
