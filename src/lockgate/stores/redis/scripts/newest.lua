-- KEYS: the organization, the index of its keys by creation. ARGV: where to begin, how many.
return read_keys(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '+', 'LIMIT', 0, ARGV[2]))
