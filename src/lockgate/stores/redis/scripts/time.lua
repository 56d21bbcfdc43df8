-- Return the instant of this call in microseconds: the one given, or the server's clock (D27).
local function instant(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Write a whole number without exponent or fraction.
local function whole_number(number)
  return string.format('%.0f', number)
end
