-- What charge.lua takes, in this order: if quota leases are asked for or settled, or named limits charged, the
-- id of the lease to grant, the most units and the span, then of each lease to settle its id, the bytes that
-- follow, and instants with the units used until each; of named limits their windows, packed, and their
-- fields, or in hit.lua the holder of promises; and the windows of the plan with the request.
--
-- A request: the instant at which it is made, or -1 for now by the server's clock (D27); its cost; the
-- instant from which on it is refused as expired; the fingerprint of its plan; its id; and the server's
-- instant before it was first sent, 0 if this is the first time, or what is done in place of a charge.
--
-- Takes at, the first of these arguments. The locals here are those of the whole script.
local ADMITTED, LIMITED, PROMISED_UNITS, EXPIRED, ANOTHER_PERIOD = 1, 2, 3, 4, 5
local PEEKS, SETTLES, REQUEST = -1, -2, 48
local call, read, write, cut = redis.call, struct.unpack, struct.pack, string.sub
local last_argument = #ARGV
local plan = ARGV[last_argument]
local now, cost, expires_at, mark, id, since = read('<dddc8c8d', plan, #plan - REQUEST + 1)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
