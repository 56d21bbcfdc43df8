-- KEYS as add_key has them. ARGV: now, the user, whether to revoke all live keys, whether to keep the
-- token, the seal that the account must have to be claimed, the one that it gets.
local now = instant(ARGV[1])
local account = account_of(KEYS[1])
if not account then
  return false
end
if account[CLAIMED_BY] == '' and account[SEAL] == ARGV[5] then
  account[CLAIMED], account[SEAL], account[CLAIMED_BY] = whole_number(now), ARGV[6], ARGV[2]
end
if account[CLAIMED_BY] == ARGV[2] then
  if ARGV[4] == '0' and account[TOKEN_REVOKED] == '' then
    account[TOKEN_REVOKED] = whole_number(now)
  end
  if ARGV[3] == '1' then
    local live = redis.call('ZRANGEBYLEX', KEYS[2], '(' .. place(now, '\255'), '+')
    for _, member in ipairs(live) do
      revoke_key(string.sub(member, 17), now)
    end
  end
end
return keep_account(KEYS[1], account)
