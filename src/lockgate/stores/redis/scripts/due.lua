-- KEYS: the organization, the indexes of its unrevoked and of its revoked keys. ARGV: an instant, how
-- many. Gives records and usage of keys that ended by then.
local until_then = '[' .. place(ARGV[1], '\255')
local due = redis.call('ZRANGEBYLEX', KEYS[3], '-', until_then, 'LIMIT', 0, ARGV[2])
local expired = redis.call('ZRANGEBYLEX', KEYS[2], '-', until_then, 'LIMIT', 0, ARGV[2] - #due)
for _, member in ipairs(expired) do
  due[#due + 1] = member
end
return read_keys(due)
