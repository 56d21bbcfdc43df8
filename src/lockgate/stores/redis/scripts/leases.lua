-- The verbs of concurrency slots: a script calls one of these functions. The specification is
-- lockgate/core/leases.py; this restates it for Redis.
--
-- A sorted set holds the jobs by their deadlines. A hash holds of each job its number in the order of
-- acquisition, its span and its owner; of all jobs together the next number and the instant of the
-- latest call. Both disappear with the last lease.
--
-- KEYS of every verb: the hash of the leases, the set of their deadlines.
--
-- include: time.lua

local LEASE = '^(%d+) (%d+) (.*)$'
local MARGIN = 60000 -- Milliseconds for which both outlive the latest deadline.

-- Return a lease: number, job, owner, deadline, span.
local function lease_of(job, deadline)
  local number, span, owner = string.match(redis.call('HGET', KEYS[1], 'job ' .. job), LEASE)
  return { tonumber(number), job, owner, tonumber(deadline), tonumber(span) }
end

-- Remove the leases that ended by now or by the latest call, even where the clock has stepped back
-- since (L4), and shorten any that lies further ahead than its span.
local function prune(now)
  local clock = redis.call('HGET', KEYS[1], 'clock')
  if not clock then
    return
  end
  clock = tonumber(clock)
  local edge = whole_number(math.max(now, clock))
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', edge)) do
    redis.call('ZREM', KEYS[2], job)
    redis.call('HDEL', KEYS[1], 'job ' .. job)
  end
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
    return
  end
  if now < clock then
    local jobs = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
    for at = 1, #jobs, 2 do
      local _, job, _, deadline, span = unpack(lease_of(jobs[at], jobs[at + 1]))
      if deadline > now + span then
        redis.call('ZADD', KEYS[2], whole_number(now + span), job)
      end
    end
  end
  redis.call('HSET', KEYS[1], 'clock', whole_number(now))
end

-- Write a lease that lasts for a span from now, and return it.
local function grant(job, number, owner, now, span)
  local fields = { 'job ' .. job, number .. ' ' .. whole_number(span) .. ' ' .. owner }
  redis.call('HSET', KEYS[1], 'clock', whole_number(now), unpack(fields))
  redis.call('ZADD', KEYS[2], whole_number(now + span), job)
  local life = math.ceil(span / 1000) + MARGIN
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, whole_number(life))
    end
  end
  return lease_of(job, redis.call('ZSCORE', KEYS[2], job))
end

-- Acquire a slot; a job that holds one keeps it (L6).
-- ARGV: now, job, owner, the limit or empty, span.
-- Returns how many slots are held, and the lease unless it is refused.
local function acquire()
  local now, job = instant(ARGV[1]), ARGV[2]
  prune(now)
  local held = redis.call('ZCARD', KEYS[2])
  local deadline = redis.call('ZSCORE', KEYS[2], job)
  if deadline then
    return { held, lease_of(job, deadline) }
  end
  if ARGV[4] ~= '' and held >= tonumber(ARGV[4]) then
    return { held }
  end
  local number = redis.call('HINCRBY', KEYS[1], 'next', 1)
  return { held + 1, grant(job, number, ARGV[3], now, tonumber(ARGV[5])) }
end

-- Renew a live lease of this owner. ARGV: now, job, owner, span. Returns the lease, or false.
local function renew()
  local now, job = instant(ARGV[1]), ARGV[2]
  prune(now)
  local deadline = redis.call('ZSCORE', KEYS[2], job)
  if not deadline then
    return false
  end
  local number, _, owner = unpack(lease_of(job, deadline))
  if owner ~= ARGV[3] then
    return false
  end
  return grant(job, number, owner, now, tonumber(ARGV[4]))
end

-- Release a lease of this owner. ARGV: now, job, owner. Returns 1, or 0 if there is no such lease.
local function release()
  prune(instant(ARGV[1]))
  local job = ARGV[2]
  local deadline = redis.call('ZSCORE', KEYS[2], job)
  if not deadline or lease_of(job, deadline)[3] ~= ARGV[3] then
    return 0
  end
  redis.call('ZREM', KEYS[2], job)
  redis.call('HDEL', KEYS[1], 'job ' .. job)
  if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
  end
  return 1
end

-- List the live leases without changing any. ARGV: now.
local function list()
  local now = instant(ARGV[1])
  local edge = math.max(now, tonumber(redis.call('HGET', KEYS[1], 'clock') or now))
  local jobs = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. whole_number(edge), '+inf', 'WITHSCORES')
  local leases = {}
  for at = 1, #jobs, 2 do
    local lease = lease_of(jobs[at], jobs[at + 1])
    lease[4] = math.min(lease[4], now + lease[5])
    leases[#leases + 1] = lease
  end
  return leases
end
