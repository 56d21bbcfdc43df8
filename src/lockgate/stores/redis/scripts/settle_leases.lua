-- Settle quota leases of an organization, in one step.
--
-- KEYS: the windows. ARGV: what is settled, as in admit_leased.lua; the windows of the plan with a
-- request of no cost, of which the id is ignored. Returns nothing.

local windows, plan = KEYS[1], ARGV[2]
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

asked, barred = ARGV[1], true

-- include: sliding_window.lua
