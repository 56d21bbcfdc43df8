-- KEYS as add_key has them. ARGV: now, the account's scheme, its digest, its seal, what never
-- changes of it, and the key as add_key has it.
local now = instant(ARGV[1])
if account_of(KEYS[1]) or redis.call('HEXISTS', KEYS[1], KEY .. ARGV[6]) == 1 then
  return false
end
local key = add_key(now, 6)
local created = whole_number(now - now % 1000)
local fields = { created, '', '', '', '0', ARGV[2], ARGV[3], ARGV[4], '', ARGV[5] }
return { keep_account(KEYS[1], fields), key }
