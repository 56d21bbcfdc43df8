
if not reading then
  return { UNKNOWN, now }
end
if charges then
  requests, last = requests + 1, math.max(last, now)
  redis.call('HSET', KEYS[1], ARGV[2], struct.pack('<dd', requests, last))
end
-- The numbers in one string, which costs less than each by itself.
local form = '<' .. string.rep('i8', #reading)
local numbers = struct.pack(form, requests, last, unpack(reading, 3))
return { reading[1] == 1 and ADMITTED or LIMITED, now, numbers }
