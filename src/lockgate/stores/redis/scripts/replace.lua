-- KEYS: a string. ARGV: what it must be, or empty where there must be none; what it becomes; for how
-- many milliseconds.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
