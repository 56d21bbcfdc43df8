-- Charge all windows of an organization, in one step.
--
-- KEYS: the windows. ARGV: the windows of the plan with the request.
--
-- Returns the verdict with the reading; for a request that expired the verdict and the instant; nil if
-- the request was sent before and may have been charged then (D33).

local EXPIRED = 3

local windows, plan = KEYS[1], ARGV[1]
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

if expires_at <= now then
  return write('<Bi8', EXPIRED, now)
end

-- Sets reading and heads.
-- include: sliding_window.lua

return reading and reading .. heads
