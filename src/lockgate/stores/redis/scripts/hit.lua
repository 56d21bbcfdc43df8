-- Charge the windows of an organization and its named limits, in one step; or read them, or settle quota
-- leases.
--
-- KEYS: the windows, unless the plan has none; the named limits if some are charged.
-- ARGV: what charge.lua takes.
--
-- Returns the verdict with the reading, which without windows is the instant alone, and what charge.lua
-- tells; for a request that expired the verdict and the instant; nil if the request was sent before and may
-- have been charged then (D33).

local KEYS, ARGV = KEYS, ARGV -- Reading a global takes longer.
local windows, limits, at = KEYS[1], KEYS[2], 1
if ARGV[4] and not limits then
  windows, limits = nil, KEYS[1]
end

-- include: request.lua

if expires_at <= now then
  return write('<Bi8', EXPIRED, now)
end

-- include: charge.lua

return reading .. heads .. told
