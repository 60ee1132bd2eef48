export async function life() {}
