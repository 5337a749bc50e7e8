package pages

// A Warning holds the texts, in one language, that a visitor reads shortly before a session ends.
type Warning struct {
	Lang   string `json:"lang"`
	Dir    string `json:"dir"`
	Ends   string `json:"ends"` // {t} is the time left
	Extend string `json:"stay"` // label of the button that extends the session
	Ended  string `json:"ended"`
}

// Warning returns the texts in the language for a header.
func (p *Page) Warning(acceptLanguage string) Warning {
	w := p.choose(acceptLanguage).words
	return Warning{w.tag, w.Dir, w.text["ends"], w.text["stay"], w.text["ended"]}
}
