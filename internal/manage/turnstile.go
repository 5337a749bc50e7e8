package manage

import (
	"strconv"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/config"
)

// Modes of Turnstile in Cloudflare's API. A widget has its mode at Cloudflare, so the file names a widget
// for each mode that rooms may have.
const (
	turnstileOff       = "off"
	turnstileInvisible = "invisible" // the default
)

func turnstiles() []string { return append([]string{turnstileOff}, config.TurnstileModes()...) }

func turnstileActions() []string { return []string{challenge.Log, challenge.InfiniteQueue} }

// widget returns the widget of a mode, nil if the file names none.
func (b *Catalog) widget(mode string) *config.Challenge {
	for i := range b.cfg.Turnstile {
		if w := &b.cfg.Turnstile[i]; w.Mode == mode {
			return &w.Challenge
		}
	}
	return nil
}

// challengeOf returns the challenge of a room as package config reads it. A room has one: its own, or that
// of the widget of its mode. Cloudflare's default asks for a widget; without one in the file, and in rooms
// with a challenge of their own, it has no effect, because clients write it that know nothing of the file.
// Everything else that would have no effect is a fault.
func (b *Catalog) challengeOf(r *Room) (map[string]any, error) {
	own, w := r.Own.Challenge.Kind, b.widget(r.TurnstileMode)
	std := r.TurnstileMode == turnstileInvisible && r.TurnstileAction == challenge.Log
	switch {
	case r.TurnstileMode == turnstileOff, std && (own != challenge.None || w == nil):
		return map[string]any{"kind": own, "on": r.Own.Challenge.On}, nil
	case own != challenge.None:
		return nil, one("/turnstile_mode", CodeConflict, "write off, or take headgate.challenge out",
			"is "+quote(r.TurnstileMode)+", and the room has another challenge")
	case w == nil:
		return nil, one("/turnstile_mode", CodeNotSupported, "add turnstile: {"+r.TurnstileMode+
			": {sitekey: …, secret_file: …}} to the configuration file, or write off",
			"the configuration file names no widget for "+quote(r.TurnstileMode)+": it would have no effect")
	}
	v := map[string]any{"kind": challenge.Turnstile, "action": r.TurnstileAction, "sitekey": w.PublicKey,
		"on": r.Own.Challenge.On, "secret_file": w.SecretFile, "fail_open": strconv.FormatBool(w.FailOpen)}
	if w.VerifyURL != "" {
		v["verify_url"] = w.VerifyURL
	}
	if w.Hostnames != nil {
		v["hostnames"] = w.Hostnames
	}
	return v, nil
}

// isChallenged reports whether the newcomers of a room may have a challenge.
func (b *Catalog) isChallenged(r *Room) bool {
	m, err := b.challengeOf(r)
	return err != nil || m["kind"] != challenge.None
}

// fitTurnstile checks that an event of a room changes nothing of its challenge: the waiting page and the
// tickets of those who wait are made for one.
func (b *Catalog) fitTurnstile(r *Room, e *Event) error {
	const hint = "leave it out, and set it in the room"
	then := *r
	then.TurnstileMode = either(e.TurnstileMode, r.TurnstileMode)
	then.TurnstileAction = either(e.TurnstileAction, r.TurnstileAction)
	switch {
	case then.TurnstileMode != r.TurnstileMode && (b.isChallenged(&then) || b.isChallenged(r)):
		return one("/turnstile_mode", CodeNotSupported, hint, "an event cannot change the challenge of its room")
	case then.TurnstileAction != r.TurnstileAction:
		return one("/turnstile_action", CodeNotSupported, hint, "an event cannot change the challenge of its room")
	}
	return nil
}

// turnstileOf returns the mode and the action of a room of the file. headgate knows the mode of its widget
// if the file names it; managed is Cloudflare's default.
func turnstileOf(c *config.Room, b *Catalog) (mode, action string) {
	action = challenge.Log
	if c.Challenge.Endless() {
		action = challenge.InfiniteQueue
	}
	if c.Challenge.Kind != challenge.Turnstile {
		return turnstileOff, action
	}
	for i := range b.cfg.Turnstile {
		if w := &b.cfg.Turnstile[i]; w.Challenge.PublicKey == c.Challenge.PublicKey {
			return w.Mode, action
		}
	}
	return config.TurnstileModes()[2], action
}
