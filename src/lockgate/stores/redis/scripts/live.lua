-- KEYS: the organization, the index of its unrevoked keys. ARGV: now, where to begin, how many.
local live = '(' .. place(instant(ARGV[1]), '\255')
return read_keys(redis.call('ZREVRANGEBYLEX', KEYS[2], ARGV[2], live, 'LIMIT', 0, ARGV[3]))
