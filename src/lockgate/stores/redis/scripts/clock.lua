-- The instant of this call in microseconds: the caller's own, or that of the server's clock (D27).
local function instant(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
