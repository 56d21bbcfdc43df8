-- A request: when it is made, what it costs, when it is void, the mark of its plan, its id, an instant
-- before it was sent first or 0 when it is. It comes after the windows of the plan and the milliseconds
-- that their state is kept. Without an instant of its own it is made now, by the server's clock (D27).
local call, read, write, cut = redis.call, struct.unpack, struct.pack, string.sub
local REQUEST = 48
local now, cost, void, mark, id, since = read('<dddc8c8d', plan, #plan - REQUEST + 1)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
