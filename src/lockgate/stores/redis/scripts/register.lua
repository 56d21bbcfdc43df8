-- KEYS as add_key has them. ARGV: now, the account's scheme, its digest, what never
-- changes of it, and the key as add_key has it.
local now = instant(ARGV[1])
if account_of(KEYS[1]) or redis.call('HEXISTS', KEYS[1], KEY .. ARGV[5]) == 1 then
  return false
end
local key = add_key(now, 5)
local created = whole_number(now - now % 1000)
return { keep_account(KEYS[1], { created, '', '', '0', ARGV[2], ARGV[3], '', ARGV[4] }), key }
