-- KEYS: the organization.
local account = account_of(KEYS[1])
if account then
  account[SIGN_OUTS] = account[SIGN_OUTS] + 1
  keep_account(KEYS[1], account)
end
return 1
