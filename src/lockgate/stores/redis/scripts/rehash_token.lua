-- KEYS: the organization. ARGV: the scheme and digest that its token must have, those that it gets.
local account = account_of(KEYS[1])
if not account or account[SCHEME] ~= ARGV[1] or account[DIGEST] ~= ARGV[2] then
  return 0
end
account[SCHEME], account[DIGEST] = ARGV[3], ARGV[4]
keep_account(KEYS[1], account)
return 1
