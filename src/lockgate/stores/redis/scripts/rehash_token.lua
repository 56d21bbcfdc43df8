-- KEYS: the organization. ARGV: the scheme, digest and seal that its token must have, those that it
-- gets.
local account = account_of(KEYS[1])
if not account or account[5] ~= ARGV[1] or account[6] ~= ARGV[2] or account[7] ~= ARGV[3] then
  return 0
end
account[5], account[6], account[7] = ARGV[4], ARGV[5], ARGV[6]
keep_account(KEYS[1], account)
return 1
