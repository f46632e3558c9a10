# SPDX-License-Identifier: GPL-2.0
# Makes a header from the output of pahole: lines `TYPE NAME; /* OFFSET SIZE */` below `struct NAME {`.
/^struct / { structure = $2 }
function offset(text) { sub(/.*\/\*/, "", text); split(text, numbers, " "); return numbers[1] }
structure == "eppoll_entry" && / base;/ { print "#define EPPOLL_ENTRY_BASE " offset($0) }
structure == "eppoll_entry" && / wait;/ { print "#define EPPOLL_ENTRY_WAIT " offset($0) }
structure == "epitem" && / ep;/ { print "#define EPITEM_EP " offset($0) }
structure == "eventpoll" && / wq;/ { print "#define EVENTPOLL_WQ " offset($0) }
