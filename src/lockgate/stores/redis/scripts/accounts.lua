-- The record of an account: created, claimed at, token revoked at, signed in at, sign-outs, scheme,
-- digest, seal, claimed by, and what never changes, each but the last without spaces. Empty: that has
-- not happened, or there is no seal.
local ACCOUNT = '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$'
local CREATED, CLAIMED, TOKEN_REVOKED, SIGNED_IN, SIGN_OUTS = 1, 2, 3, 4, 5
local SCHEME, DIGEST, SEAL, CLAIMED_BY = 6, 7, 8, 9

local function account_of(organization)
  local kept = redis.call('HGET', organization, 'account')
  return kept and { string.match(kept, ACCOUNT) }
end

local function keep_account(organization, fields)
  local record = table.concat(fields, ' ')
  redis.call('HSET', organization, 'account', record)
  return record
end
