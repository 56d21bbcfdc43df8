-- KEYS: the organization. ARGV: the scheme, digest and seal that its token must have, those that it
-- gets.
local account = account_of(KEYS[1])
if not account or account[SCHEME] ~= ARGV[1] or account[DIGEST] ~= ARGV[2] or account[SEAL] ~= ARGV[3] then
  return 0
end
account[SCHEME], account[DIGEST], account[SEAL] = ARGV[4], ARGV[5], ARGV[6]
keep_account(KEYS[1], account)
return 1
