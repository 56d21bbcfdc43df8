-- KEYS: the organization. ARGV, for each key: the name of its record, that of its usage, requests
-- to add, when the last of them was.
for at = 1, #ARGV, 4 do
  if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1 then
    local requests, last = 0, 0
    local usage = redis.call('HGET', KEYS[1], ARGV[at + 1])
    if usage then
      requests, last = struct.unpack('<i8i8', usage)
    end
    requests = requests + tonumber(ARGV[at + 2])
    last = math.max(last, tonumber(ARGV[at + 3]))
    redis.call('HSET', KEYS[1], ARGV[at + 1], struct.pack('<i8i8', requests, last))
  end
end
return 1
