-- KEYS: the organization. ARGV: now.
local now = instant(ARGV[1])
local account = account_of(KEYS[1])
if not account or account[TOKEN_REVOKED] ~= '' then
  return false
end
if account[SIGNED_IN] == '' or tonumber(account[SIGNED_IN]) < now then
  account[SIGNED_IN] = string.format('%.0f', now)
end
return keep_account(KEYS[1], account)
