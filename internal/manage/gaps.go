package manage

// A gap is a setting of Cloudflare's API that headgate's rooms do not support. It is rejected,
// because nothing may be accepted and have no effect. The tables below are complete: to build one
// of these features, remove its line and add it to wire.go.
type gap[T any] struct {
	pointer string
	has     func(T) bool
	hint    string
}

func roomGaps() []gap[*Room] {
	return []gap[*Room]{
		{"/turnstile_mode", func(r *Room) bool {
			return r.TurnstileMode != "off" && r.TurnstileMode != "invisible"
		}, "write off, or invisible, which only logs at Cloudflare and has no effect here"},
		{"/turnstile_action", func(r *Room) bool { return r.TurnstileAction != "log" }, "write log"},
	}
}

func eventGaps() []gap[*eventDraft] {
	return []gap[*eventDraft]{
		{"/turnstile_mode", func(e *eventDraft) bool {
			m := either(e.TurnstileMode, "off")
			return m != "off" && m != "invisible"
		}, "write off or invisible"},
		{"/turnstile_action", func(e *eventDraft) bool {
			return either(e.TurnstileAction, "log") != "log"
		}, "write log"},
	}
}
