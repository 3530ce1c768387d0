CREATE INDEX items_by_category ON items (category, ends_s);
CREATE INDEX items_by_end ON items (ends_s);
CREATE INDEX items_by_seller ON items (seller, ends_s);
CREATE UNIQUE INDEX bids_by_item ON bids (item, cents);
CREATE INDEX bids_by_bidder ON bids (bidder, at_s);
CREATE INDEX comments_by_user ON comments (about, at_s);
CREATE INDEX purchases_by_buyer ON purchases (buyer);
