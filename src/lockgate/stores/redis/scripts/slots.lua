-- Slots. The specification is lockgate/rules/slots.py: this says it again for Redis.
--
-- A sorted set holds the jobs by their deadlines; a hash holds of each job its number in the order
-- of taking, its span and its owner, and of all of them the next number and the instant of the
-- latest call. Both are gone with the last lease.
local LEASE = '^(%d+) (%d+) (.*)$'
local MARGIN = 60000 -- Milliseconds that the keys outlive the latest deadline.

local function whole_number(number)
  return string.format('%.0f', number)
end

-- A lease as it goes back: number, job, owner, deadline, span.
local function lease_of(job, deadline)
  local number, span, owner = string.match(redis.call('HGET', KEYS[1], 'job ' .. job), LEASE)
  return { tonumber(number), job, owner, tonumber(deadline), tonumber(span) }
end

-- What had ended by now or by the latest call is over, even where the clock has stepped back since;
-- and no lease lies further ahead than its span.
local function settle(now)
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

-- Let a job hold a slot until a span from now.
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
end
