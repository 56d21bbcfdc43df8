-- The verbs of accounts: a script calls one of these functions.
--
-- The record of an account: created, claimed at, token revoked at, signed in at, sign-outs, scheme,
-- digest, seal, claimed by, and the fields that never change, each but the last without spaces. Empty:
-- that has not happened, or there is no seal.
--
-- The last of ARGV of register, claim, place, reset and remove_unclaimed is the text for the change log, or empty.
--
-- include: key_records.lua
-- include: change.lua

local ACCOUNT = '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$'
local CREATED, CLAIMED, TOKEN_REVOKED, SIGNED_IN, SIGN_OUTS = 1, 2, 3, 4, 5
local SCHEME, DIGEST, SEAL, CLAIMED_BY = 6, 7, 8, 9

-- Return the fields of an organization's account; false if it has none.
local function read_account()
  local record = redis.call('HGET', KEYS[1], 'account')
  return record and { string.match(record, ACCOUNT) }
end

-- Write the fields of an account and return its record.
local function write_account(fields)
  local record = table.concat(fields, ' ')
  redis.call('HSET', KEYS[1], 'account', record)
  return record
end

-- Register an account with its first key, unless the organization or the key exists.
-- KEYS of an organization, as add_key takes them. ARGV: now; the account's scheme, digest, seal and the
-- fields that never change; then the key as add_key takes it. Returns both records, or false.
local function register()
  local now = instant(ARGV[1])
  if read_account() or redis.call('HEXISTS', KEYS[1], KEY .. ARGV[6]) == 1 then
    return false
  end
  local key = add_key(now, 6)
  local created = whole_number(now - now % 1000)
  local fields = { created, '', '', '', '0', ARGV[2], ARGV[3], ARGV[4], '', ARGV[5] }
  log_change(now, ARGV[#ARGV])
  return { write_account(fields), key }
end

-- Claim an account for a user, unless another user has claimed it.
-- KEYS of an organization, as add_key takes them. ARGV: now, the user, whether to revoke all live keys,
-- whether to keep the token, the seal that an unclaimed account must have, the one that it gets.
-- Returns the record as it is then, or false.
local function claim()
  local now = instant(ARGV[1])
  local account = read_account()
  if not account then
    return false
  end
  local is_changed = false
  if account[CLAIMED_BY] == '' and account[SEAL] == ARGV[5] then
    is_changed = true
    account[CLAIMED], account[SEAL], account[CLAIMED_BY] = whole_number(now), ARGV[6], ARGV[2]
  end
  if account[CLAIMED_BY] == ARGV[2] then
    if ARGV[4] == '0' and account[TOKEN_REVOKED] == '' then
      is_changed = true
      account[TOKEN_REVOKED] = whole_number(now)
    end
    if ARGV[3] == '1' then
      local live = redis.call('ZRANGEBYLEX', KEYS[2], '(' .. place(now, '\255'), '+')
      for _, member in ipairs(live) do
        is_changed = true
        revoke_key(string.sub(member, 17), now, '')
      end
    end
  end
  if is_changed then
    log_change(now, ARGV[#ARGV])
  end
  return write_account(account)
end

-- Assign a plan. KEYS: the organization. ARGV: now, the plan in JSON, the organization's id.
local function place()
  local before = redis.call('HGET', KEYS[1], 'plan')
  if before ~= ARGV[2] then
    redis.call('HSET', KEYS[1], 'plan', ARGV[2], 'id', ARGV[3])
    log_change(instant(ARGV[1]), ARGV[#ARGV], before or 'null')
  end
  return 1
end

-- Empty the windows, and keep the quota leases that are out.
-- KEYS: the organization, its windows, its named limits. ARGV: now.
local function reset()
  local leases, tag = leases_out(KEYS[2])
  redis.call('DEL', KEYS[3])
  if leases then
    local number = math.floor(tag / 256)
    local front = string.rep('\0', TAG - 1) .. struct.pack('<I2', FORMAT + LEASED + 256 * number)
    local heads = string.rep('\0', HEADS + HEAD * number - TAG - 2)
    redis.call('SET', KEYS[2], front .. heads .. leases, 'KEEPTTL')
  else
    redis.call('DEL', KEYS[2])
  end
  log_change(instant(ARGV[1]), ARGV[#ARGV])
  return 1
end

-- Record a sign-in. KEYS: the organization. ARGV: now. Returns the record; false if the token is revoked.
local function sign_in()
  local now = instant(ARGV[1])
  local account = read_account()
  if not account or account[TOKEN_REVOKED] ~= '' then
    return false
  end
  if account[SIGNED_IN] == '' or tonumber(account[SIGNED_IN]) < now then
    account[SIGNED_IN] = whole_number(now)
  end
  return write_account(account)
end

-- Count a sign-out, which ends all sessions before it. KEYS: the organization.
local function sign_out()
  local account = read_account()
  if account then
    account[SIGN_OUTS] = account[SIGN_OUTS] + 1
    write_account(account)
  end
  return 1
end

-- Replace the digest of a token if it has the expected one.
-- KEYS: the organization. ARGV: scheme, digest and seal expected; scheme, digest and seal to set.
-- Returns 1 or 0.
local function rehash_token()
  local account = read_account()
  if
    not account
    or account[SCHEME] ~= ARGV[1]
    or account[DIGEST] ~= ARGV[2]
    or account[SEAL] ~= ARGV[3]
  then
    return 0
  end
  account[SCHEME], account[DIGEST], account[SEAL] = ARGV[4], ARGV[5], ARGV[6]
  write_account(account)
  return 1
end

-- Remove an unclaimed account that has been idle, with its keys.
-- KEYS of an organization, as add_key takes them. ARGV: now, the instant since which it must be unused.
-- Returns 'removed', 'gone' if it was removed before, 'never' if it has been claimed or assigned a plan,
-- else the instant of its latest use.
local function remove_unclaimed()
  local account = read_account()
  if not account then
    return 'gone'
  end
  if account[CLAIMED_BY] ~= '' or redis.call('HEXISTS', KEYS[1], 'plan') == 1 then
    return 'never'
  end
  local latest = math.max(tonumber(account[CREATED]), tonumber(account[SIGNED_IN]) or 0)
  local all, fields = redis.call('HGETALL', KEYS[1]), { 'account' }
  for at = 1, #all, 2 do
    local kind = string.sub(all[at], 1, #KEY)
    if kind == KEY then
      latest = math.max(latest, tonumber((string.match(all[at + 1], RECORD))))
      fields[#fields + 1] = all[at]
    elseif kind == USAGE then
      local requests, last = struct.unpack('<i8i8', all[at + 1])
      latest = math.max(latest, requests > 0 and last or 0)
      fields[#fields + 1] = all[at]
    end
  end
  if latest > tonumber(ARGV[2]) then
    return whole_number(latest)
  end
  for _, field in ipairs(fields) do
    redis.call('HDEL', KEYS[1], field)
  end
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  log_change(instant(ARGV[1]), ARGV[#ARGV])
  return 'removed'
end
