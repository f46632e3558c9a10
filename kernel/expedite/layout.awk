# SPDX-License-Identifier: GPL-2.0
# Makes a header from the output of pahole: lines `TYPE NAME; /* OFFSET SIZE */` below `struct NAME {`.
/^struct / { structure = $2 }
function offset(text) { sub(/.*\/\*/, "", text); split(text, numbers, " "); return numbers[1] }
structure == "eppoll_entry" && / base;/ { print "#define EPPOLL_ENTRY_BASE " offset($0) }
structure == "eppoll_entry" && / wait;/ { print "#define EPPOLL_ENTRY_WAIT " offset($0) }
structure == "epitem" && / ep;/ { print "#define EPITEM_EP " offset($0) }
structure == "epitem" && / event;/ { print "#define EPITEM_EVENT " offset($0) }
structure == "eventpoll" && / wq;/ { print "#define EVENTPOLL_WQ " offset($0) }
structure == "eventpoll" && / poll_wait;/ { print "#define EVENTPOLL_POLL_WAIT " offset($0) }
structure == "eventpoll" && / lock;/ { print "#define EVENTPOLL_LOCK " offset($0) }
structure == "eventpoll" && /rwlock_t .* lock;/ { print "#define EVENTPOLL_LOCK_IS_RW" }
structure == "task_group" && / idle;/ { print "#define TASK_GROUP_IDLE " offset($0) }
structure == "task_group" && / parent;/ { print "#define TASK_GROUP_PARENT " offset($0) }
structure == "task_group" && / cfs_bandwidth;/ { print "#define TASK_GROUP_CFS_BANDWIDTH " offset($0) }
structure == "cfs_bandwidth" && / quota;/ { print "#define CFS_BANDWIDTH_QUOTA " offset($0) }
