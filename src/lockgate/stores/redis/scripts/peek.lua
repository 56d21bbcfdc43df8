-- Read all windows of an organization without changing anything (W5).
--
-- KEYS: the windows. ARGV: the windows of the plan with a request, of which the id is ignored.
--
-- Returns the verdict that a hit of this cost would get, with the reading.

local windows, plan = KEYS[1], ARGV[1]
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

id = nil

-- Sets reading and heads.
-- include: sliding_window.lua

return reading .. heads
