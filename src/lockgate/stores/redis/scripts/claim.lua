-- KEYS: the organization, its live keys. ARGV: now, the user, whether to revoke all keys, whether to
-- keep the token.
local now = instant(ARGV[1])
local account = account_of(KEYS[1])
if not account then
  return false
end
if account[CLAIMED_BY] == '' then
  account[CLAIMED], account[CLAIMED_BY] = whole_number(now), ARGV[2]
end
if account[CLAIMED_BY] == ARGV[2] then
  if ARGV[4] == '0' and account[TOKEN_REVOKED] == '' then
    account[TOKEN_REVOKED] = whole_number(now)
  end
  if ARGV[3] == '1' then
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
      if string.sub(field, 1, #KEY) == KEY then
        revoke_key(string.sub(field, #KEY + 1), now)
      end
    end
  end
end
return keep_account(KEYS[1], account)
