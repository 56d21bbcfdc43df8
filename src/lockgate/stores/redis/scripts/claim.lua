-- KEYS as add_key has them. ARGV: now, the user, whether to revoke what there is, the seal that the
-- account must have to be claimed, the one that it gets.
local now = instant(ARGV[1])
local account = account_of(KEYS[1])
if not account then
  return false
end
if account[8] == '' and account[7] == ARGV[4] then
  account[2], account[7], account[8] = whole_number(now), ARGV[5], ARGV[2]
end
if ARGV[3] == '1' and account[8] == ARGV[2] then
  if account[3] == '' then
    account[3] = whole_number(now)
  end
  local live = redis.call('ZRANGEBYLEX', KEYS[2], '(' .. place(now, '\255'), '+')
  for _, member in ipairs(live) do
    revoke_key(string.sub(member, 17), now)
  end
end
return keep_account(KEYS[1], account)
