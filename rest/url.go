package rest

import "net/url"

// SplitURL takes the token out of a store's URL of the form http://agl:TOKEN@host,
// for those who may know where the store is and not how to get in. What is no URL
// stays as it is.
func SplitURL(raw string) (public, token string) {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw, ""
	}
	token, _ = u.User.Password()
	u.User = nil
	return u.String(), token
}
