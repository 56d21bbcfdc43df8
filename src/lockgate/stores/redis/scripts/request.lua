-- A request, which stands at the end of plan: the instant at which it is made, or -1 for now by the
-- server's clock (D27); its cost; the instant from which on it is refused as expired; the fingerprint of
-- its plan; its id; and the server's instant before it was first sent, 0 if this is the first time.
local call, read, write, cut = redis.call, struct.unpack, struct.pack, string.sub
local REQUEST = 48
local barred = false -- Whether a named limit refuses (limits.lua).
local asked, granted = nil, 0 -- Of quota leases (admit_leased.lua).
local now, cost, expires_at, mark, id, since = read('<dddc8c8d', plan, #plan - REQUEST + 1)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
