-- KEYS: the organization.
local account = account_of(KEYS[1])
if account then
  account[4] = account[4] + 1
  keep_account(KEYS[1], account)
end
return 1
